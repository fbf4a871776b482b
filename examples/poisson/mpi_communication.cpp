// See mpi_communication.hpp.  Each collective is what a program of MPI calls in its place: sums are
// MPI_Allreduce where they have nothing to compute meanwhile, else MPI_Iallreduce; blocks are
// persistent messages between the ranks that have some for each other.
#include "mpi_communication.hpp"

#include <utility>
#include <vector>

namespace poisson {
namespace {

class MpiSum final : public Collective {
 public:
  MpiSum(MPI_Comm communicator, const void* source, void* target, std::size_t count,
         MPI_Datatype type, MPI_Op operation)
      : communicator_(communicator),
        source_(source),
        target_(target),
        count_(static_cast<int>(count)),
        type_(type),
        operation_(operation) {}

  void start() override {
    MPI_Iallreduce(source_, target_, count_, type_, operation_, communicator_, &request_);
  }
  void progress() override {
    int finished = 0;
    MPI_Test(&request_, &finished, MPI_STATUS_IGNORE);
  }
  void wait() override { MPI_Wait(&request_, MPI_STATUS_IGNORE); }
  void run() override { MPI_Allreduce(source_, target_, count_, type_, operation_, communicator_); }

 private:
  MPI_Comm communicator_;
  const void* source_;
  void* target_;
  int count_;
  MPI_Datatype type_;
  MPI_Op operation_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiExchange final : public Collective {
 public:
  MpiExchange(MPI_Comm communicator, Blocks<const double> source, Blocks<double> target) {
    int self = 0;
    MPI_Comm_rank(communicator, &self);
    const double* outgoing = source.values.data();
    double* incoming = target.values.data();
    for (std::size_t rank = 0; rank < source.counts.size(); ++rank) {
      const int peer = static_cast<int>(rank);
      const int sent = static_cast<int>(source.counts[rank]);
      const int received = static_cast<int>(target.counts[rank]);
      if (received > 0)
        MPI_Recv_init(incoming, received, MPI_DOUBLE, peer, 0, communicator,
                      &requests_.emplace_back());
      if (sent > 0)
        MPI_Send_init(outgoing, sent, MPI_DOUBLE, peer, 0, communicator, &requests_.emplace_back());
      outgoing += sent;
      incoming += received;
    }
  }
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;
  ~MpiExchange() override {
    for (MPI_Request& request : requests_) MPI_Request_free(&request);
  }

  void start() override {
    if (count() > 0) MPI_Startall(count(), requests_.data());  // Open MPI refuses none
  }
  void progress() override {
    int finished = 0;
    MPI_Testall(count(), requests_.data(), &finished, MPI_STATUSES_IGNORE);
  }
  void wait() override { MPI_Waitall(count(), requests_.data(), MPI_STATUSES_IGNORE); }
  void run() override {
    start();
    wait();
  }

 private:
  int count() const { return static_cast<int>(requests_.size()); }

  std::vector<MPI_Request> requests_;
};

void add_exact_sums(void* incoming, void* partial, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i)
    static_cast<tutti::ExactSum*>(partial)[i].add(static_cast<tutti::ExactSum*>(incoming)[i]);
}

class MpiCommunication final : public Communication {
 public:
  explicit MpiCommunication(MPI_Comm communicator) : communicator_(communicator) {
    MPI_Type_contiguous(sizeof(tutti::ExactSum), MPI_BYTE, &exact_sum_);
    MPI_Type_commit(&exact_sum_);
    MPI_Op_create(add_exact_sums, 1, &exact_addition_);
  }
  MpiCommunication(const MpiCommunication&) = delete;
  MpiCommunication& operator=(const MpiCommunication&) = delete;
  ~MpiCommunication() override {
    MPI_Op_free(&exact_addition_);
    MPI_Type_free(&exact_sum_);
  }

  std::string name() const override { return "MPI"; }
  std::uint32_t rank() const override {
    int rank = 0;
    MPI_Comm_rank(communicator_, &rank);
    return static_cast<std::uint32_t>(rank);
  }
  std::uint32_t rank_count() const override {
    int count = 0;
    MPI_Comm_size(communicator_, &count);
    return static_cast<std::uint32_t>(count);
  }

  std::unique_ptr<Collective> sum(std::span<const double> source,
                                  std::span<double> target) override {
    return std::make_unique<MpiSum>(communicator_, source.data(), target.data(), source.size(),
                                    MPI_DOUBLE, MPI_SUM);
  }
  std::unique_ptr<Collective> sum(std::span<const tutti::ExactSum> source,
                                  std::span<tutti::ExactSum> target) override {
    return std::make_unique<MpiSum>(communicator_, source.data(), target.data(), source.size(),
                                    exact_sum_, exact_addition_);
  }
  std::unique_ptr<Collective> exchange(Blocks<const double> source,
                                       Blocks<double> target) override {
    return std::make_unique<MpiExchange>(communicator_, source, target);
  }

  void synchronize() override { MPI_Barrier(communicator_); }

 private:
  MPI_Comm communicator_;
  MPI_Datatype exact_sum_ = MPI_DATATYPE_NULL;
  MPI_Op exact_addition_ = MPI_OP_NULL;
};

}  // namespace

std::unique_ptr<Communication> mpi_communication(MPI_Comm communicator) {
  return std::make_unique<MpiCommunication>(communicator);
}

}  // namespace poisson
