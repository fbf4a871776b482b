// See tutti_communication.hpp.  Each collective is an operation of tutti: planned and connected
// when it is made, so that start(), test() and wait() only move numbers.
#include "tutti_communication.hpp"

#include <chrono>
#include <stdexcept>
#include <utility>

namespace poisson {
namespace {

class TuttiCollective final : public Collective {
 public:
  TuttiCollective(tutti::Communicator& communicator, tutti::Operation operation)
      : communicator_(communicator), operation_(std::move(operation)) {}

  void start() override { expect_ok(operation_.start()); }
  // A failure is kept by the communicator: wait() returns it, too.
  void progress() override { static_cast<void>(operation_.test()); }
  void wait() override { expect_ok(operation_.wait(std::chrono::seconds(60))); }
  void run() override {
    start();
    wait();
  }

 private:
  void expect_ok(tutti::Status status) {
    if (status == tutti::Status::ok) return;
    throw std::runtime_error(status == tutti::Status::timed_out ? operation_.describe()
                                                                : communicator_.failure().text);
  }

  tutti::Communicator& communicator_;
  tutti::Operation operation_;
};

class TuttiCommunication final : public Communication {
 public:
  explicit TuttiCommunication(tutti::Communicator& communicator) : communicator_(communicator) {}

  std::string name() const override { return "tutti"; }
  std::uint32_t rank() const override { return index_of(communicator_.rank()); }
  std::uint32_t rank_count() const override { return communicator_.rank_count(); }

  /// All ranks get the same bits (tutti::Agreement::identical), so they decide alike.
  std::unique_ptr<Collective> sum(std::span<const double> source,
                                  std::span<double> target) override {
    return collective(tutti::allreduce<double>(communicator_, source, target, tutti::sum));
  }

  std::unique_ptr<Collective> sum(std::span<const tutti::ExactSum> source,
                                  std::span<tutti::ExactSum> target) override {
    return collective(
        tutti::allreduce<tutti::ExactSum>(communicator_, source, target, tutti::exact_addition()));
  }

  std::unique_ptr<Collective> exchange(Blocks<const double> source,
                                       Blocks<double> target) override {
    return collective(tutti::alltoallv<double>(communicator_, source.values, source.counts,
                                               target.values, target.counts));
  }

  void synchronize() override { communicator_.synchronize(); }

 private:
  std::unique_ptr<Collective> collective(tutti::Operation operation) {
    return std::make_unique<TuttiCollective>(communicator_, std::move(operation));
  }

  tutti::Communicator& communicator_;
};

}  // namespace

std::unique_ptr<Communication> tutti_communication(tutti::Communicator& communicator) {
  return std::make_unique<TuttiCommunication>(communicator);
}

}  // namespace poisson
