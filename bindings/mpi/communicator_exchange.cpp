#include "communicator_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "handles.hpp"
#include "loaded_mpi.hpp"
#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

// MPI counts with int, also what all ranks bring together.
constexpr std::size_t chunk_bytes_max = std::size_t{1} << 16;

class CommunicatorExchange final : public Exchange {
 public:
  explicit CommunicatorExchange(MPI_Comm communicator) : communicator_(communicator) {
    int rank = 0;
    int rank_count = 0;
    own_mpi().Comm_rank(communicator, &rank);
    own_mpi().Comm_size(communicator, &rank_count);
    self_ = Rank{static_cast<std::uint32_t>(rank)};
    rank_count_ = static_cast<std::uint32_t>(rank_count);
  }

  Rank self() const noexcept override { return self_; }
  std::uint32_t rank_count() const noexcept override { return rank_count_; }

  void allgather(std::span<const std::byte> mine, std::span<std::byte> all, Timeout) override {
    std::vector<std::byte> part;
    for (std::size_t begin = 0; begin < mine.size(); begin += chunk_bytes_max) {
      const std::size_t bytes = std::min(chunk_bytes_max, mine.size() - begin);
      part.resize(bytes * rank_count_);
      check(own_mpi().Allgather(&mine[begin], static_cast<int>(bytes), handles().byte, part.data(),
                                static_cast<int>(bytes), handles().byte, communicator_));
      for (std::size_t rank = 0; rank < rank_count_; ++rank)
        std::memcpy(&all[rank * mine.size() + begin], &part[rank * bytes], bytes);
    }
  }

  void barrier(Timeout) override { check(own_mpi().Barrier(communicator_)); }

 private:
  static void check(int result) {
    if (result == MPI_SUCCESS) return;
    throw Error(
        ErrorCode::peer_failed,
        "a collective of MPI, by which ranks meet, ended with error " + std::to_string(result));
  }

  MPI_Comm communicator_;
  Rank self_{};
  std::uint32_t rank_count_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> communicator_exchange(MPI_Comm communicator) {
  return std::make_unique<CommunicatorExchange>(communicator);
}

}  // namespace tutti::interposer
