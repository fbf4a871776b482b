// See mpi_communication.hpp.  Each collective is what a program of MPI calls in its place: sums are
// MPI_Allreduce where they have nothing to compute meanwhile, else MPI_Iallreduce; blocks are
// persistent messages between the ranks that have some for each other.
#include "mpi_communication.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "matrix.hpp"

namespace poisson {
namespace {

/// MPI's sums: as the linker finds them, or in the library of MPI itself, whoever stands before it.
struct Sums {
  decltype(&MPI_Allreduce) allreduce = MPI_Allreduce;
  decltype(&MPI_Iallreduce) iallreduce = MPI_Iallreduce;
};

/// MPI's library is where a function is that nobody stands in for.
Sums sums_of_mpi() {
  Dl_info place{};
  void* library = nullptr;
  if (dladdr(dlsym(RTLD_DEFAULT, "MPI_Get_version"), &place) != 0)
    library = dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* const allreduce = library == nullptr ? nullptr : dlsym(library, "MPI_Allreduce");
  void* const iallreduce = library == nullptr ? nullptr : dlsym(library, "MPI_Iallreduce");
  if (allreduce == nullptr || iallreduce == nullptr)
    throw std::runtime_error("MPI's own functions beside libtutti-mpi were not found");
  return {reinterpret_cast<decltype(&MPI_Allreduce)>(allreduce),
          reinterpret_cast<decltype(&MPI_Iallreduce)>(iallreduce)};
}

class MpiSum final : public Collective {
 public:
  MpiSum(const Sums& sums, MPI_Comm communicator, const void* source, void* target,
         std::size_t count, MPI_Datatype type, MPI_Op operation)
      : sums_(sums),
        communicator_(communicator),
        source_(source),
        target_(target),
        count_(static_cast<int>(count)),
        type_(type),
        operation_(operation) {}

  void start() override {
    sums_.iallreduce(source_, target_, count_, type_, operation_, communicator_, &request_);
  }
  void progress() override {
    int finished = 0;
    MPI_Test(&request_, &finished, MPI_STATUS_IGNORE);
  }
  void wait() override { MPI_Wait(&request_, MPI_STATUS_IGNORE); }
  void run() override {
    sums_.allreduce(source_, target_, count_, type_, operation_, communicator_);
  }

 private:
  Sums sums_;
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
  MpiCommunication(MPI_Comm communicator, std::string name, const Sums& sums)
      : communicator_(communicator), name_(std::move(name)), sums_(sums) {
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

  std::string name() const override { return name_; }
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
    return std::make_unique<MpiSum>(sums_, communicator_, source.data(), target.data(),
                                    source.size(), MPI_DOUBLE, MPI_SUM);
  }
  std::unique_ptr<Collective> sum(std::span<const tutti::ExactSum> source,
                                  std::span<tutti::ExactSum> target) override {
    return std::make_unique<MpiSum>(sums_, communicator_, source.data(), target.data(),
                                    source.size(), exact_sum_, exact_addition_);
  }
  std::unique_ptr<Collective> exchange(Blocks<const double> source,
                                       Blocks<double> target) override {
    return std::make_unique<MpiExchange>(communicator_, source, target);
  }

  void synchronize() override { MPI_Barrier(communicator_); }

 private:
  MPI_Comm communicator_;
  std::string name_;
  Sums sums_;
  MPI_Datatype exact_sum_ = MPI_DATATYPE_NULL;
  MPI_Op exact_addition_ = MPI_OP_NULL;
};

}  // namespace

std::unique_ptr<Communication> mpi_communication(MPI_Comm communicator) {
  return std::make_unique<MpiCommunication>(communicator, "MPI",
                                            interposer_calls() ? sums_of_mpi() : Sums());
}

std::unique_ptr<Communication> preloaded_communication(MPI_Comm communicator) {
  if (!interposer_calls())
    throw UsageError("--with preloaded: libtutti-mpi is not loaded; expected it in LD_PRELOAD");
  return std::make_unique<MpiCommunication>(communicator, "preloaded", Sums());
}

InterposerCalls interposer_calls() {
  return reinterpret_cast<InterposerCalls>(dlsym(RTLD_DEFAULT, "tutti_mpi_calls"));
}

}  // namespace poisson
