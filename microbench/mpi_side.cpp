#include "microbench/mpi_side.hpp"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <tutti/detail/enumerators.hpp>
#include <tutti/status.hpp>
#include <utility>
#include <vector>

#include "bootstrap/mpi_exchange.hpp"
#include "microbench/options.hpp"
#include "microbench/reference.hpp"

namespace tutti::bench {
namespace {

/// `call` makes one call of MPI.
template <class Call>
class MpiSubject final : public Subject {
 public:
  MpiSubject(Call call, std::optional<Rank> root) : call_(std::move(call)), root_(root) {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls) call_();
  }
  void synchronise() override { MPI_Barrier(MPI_COMM_WORLD); }
  std::optional<Rank> root() const noexcept override { return root_; }

 private:
  Call call_;
  std::optional<Rank> root_;
};

template <class Call>
std::unique_ptr<Subject> subject(Call call, std::optional<Rank> root = {}) {
  return std::make_unique<MpiSubject<Call>>(std::move(call), root);
}

/// A count of elements or bytes as an int, in which MPI counts; throws if it is too large.
int mpi_count(std::size_t count) {
  if (count > INT32_MAX)
    throw Error(ErrorCode::unsupported,
                "MPI takes at most 2147483647 elements (bytes in a broadcast)");
  return static_cast<int>(count);
}

extern "C" void compose_for_mpi(void* incoming, void* partial, int* count, MPI_Datatype*) {
  const auto* left = static_cast<const std::uint64_t*>(incoming);
  auto* right = static_cast<std::uint64_t*>(partial);
  for (int i = 0; i < *count; ++i) right[i] = compose_affine(left[i], right[i]);
}

/// Elements of 16 bits are refused with --against mpi.
MPI_Datatype mpi_type(ElementType type) {
  const MPI_Datatype in_order[] = {MPI_BYTE,  MPI_INT32_T, MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T,
                                   MPI_FLOAT, MPI_DOUBLE,  MPI_BYTE,     MPI_BYTE};
  static_assert(std::size(in_order) == detail::enumerators<ElementType::bfloat16>.size());
  return in_order[static_cast<std::size_t>(type)];
}

MPI_Op mpi_op(BuiltIn op) {
  const MPI_Op in_order[] = {MPI_OP_NULL, MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX,
                             MPI_BAND,    MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR};
  static_assert(std::size(in_order) == detail::enumerators<BuiltIn::logical_or>.size());
  return in_order[static_cast<std::size_t>(op)];
}

class RealMpi final : public MpiSide {
 public:
  RealMpi() {
    if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS)
      throw Error(ErrorCode::system, "MPI_Init failed; use --local N to start without MPI");
    exchange_ = mpi_exchange(MPI_COMM_WORLD);
    MPI_Op_create(compose_for_mpi, 0, &user_op_);
  }
  ~RealMpi() override {
    exchange_.reset();
    MPI_Op_free(&user_op_);
    MPI_Finalize();
  }

  Exchange& exchange() noexcept override { return *exchange_; }

  std::string library_name() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    return shortened_library_version(text.data());
  }

  std::unique_ptr<Subject> barrier() override {
    return subject([] { MPI_Barrier(MPI_COMM_WORLD); });
  }

  std::unique_ptr<Subject> collective(Collective collective, Buffers& buffers, std::size_t bytes,
                                      const Options& options) override {
    void* const source = buffers.source.data();
    void* const target = buffers.target.data();
    const std::size_t element_count = bytes / element_bytes(options.dtype);
    // The counts are converted only in collectives that use them: MPI counts in int.
    const auto elements = [&] { return mpi_count(element_count); };
    const auto count_of_bytes = [&] { return mpi_count(bytes); };
    const MPI_Datatype type = mpi_type(options.dtype);
    const MPI_Op op = op_of(options.op);
    const std::uint32_t rank_count = exchange_->rank_count();
    const std::vector<std::size_t> sizes = block_sizes(collective, options, bytes, rank_count);
    const auto own_count = [&] { return mpi_count(sizes[index_of(exchange_->self())]); };
    const auto counts_of = [&] {
      std::vector<int> counts;
      for (const std::size_t size : sizes) counts.push_back(mpi_count(size));
      return counts;
    };
    const auto places_of = [&] {
      std::vector<int> places;
      std::size_t next = 0;
      for (const std::size_t size : sizes)
        places.push_back(mpi_count(std::exchange(next, next + size)));
      return places;
    };
    const Rank of_root = options.root;
    const int root = static_cast<int>(index_of(of_root));
    switch (collective) {
      case Collective::allreduce:
        return subject([=, count = elements()] {
          MPI_Allreduce(source, target, count, type, op, MPI_COMM_WORLD);
        });
      case Collective::reduce:
        return subject(
            [=, count = elements()] {
              MPI_Reduce(source, target, count, type, op, root, MPI_COMM_WORLD);
            },
            of_root);
      case Collective::reduce_scatter: {
        std::vector<int> counts;
        for (const std::size_t share : reduce_scatter_counts(element_count, rank_count))
          counts.push_back(mpi_count(share));
        return subject(
            [=] { MPI_Reduce_scatter(source, target, counts.data(), type, op, MPI_COMM_WORLD); });
      }
      case Collective::scan:
        return subject(
            [=, count = elements()] { MPI_Scan(source, target, count, type, op, MPI_COMM_WORLD); },
            Rank{0});
      case Collective::exscan:
        return subject(
            [=, count = elements()] {
              MPI_Exscan(source, target, count, type, op, MPI_COMM_WORLD);
            },
            Rank{0});
      case Collective::broadcast:
        return subject(
            [=, count = count_of_bytes()] {
              MPI_Bcast(source, count, MPI_BYTE, root, MPI_COMM_WORLD);
            },
            of_root);
      case Collective::allgather:
        return subject([=, count = count_of_bytes()] {
          MPI_Allgather(source, count, MPI_BYTE, target, count, MPI_BYTE, MPI_COMM_WORLD);
        });
      case Collective::allgatherv:
        return subject([=, count = own_count(), counts = counts_of(), places = places_of()] {
          MPI_Allgatherv(source, count, MPI_BYTE, target, counts.data(), places.data(), MPI_BYTE,
                         MPI_COMM_WORLD);
        });
      case Collective::alltoall:
        return subject([=, count = count_of_bytes()] {
          MPI_Alltoall(source, count, MPI_BYTE, target, count, MPI_BYTE, MPI_COMM_WORLD);
        });
      case Collective::alltoallv:
        return subject([=, counts = counts_of(), places = places_of()] {
          MPI_Alltoallv(source, counts.data(), places.data(), MPI_BYTE, target, counts.data(),
                        places.data(), MPI_BYTE, MPI_COMM_WORLD);
        });
      case Collective::gather:
        return subject(
            [=, count = count_of_bytes()] {
              MPI_Gather(source, count, MPI_BYTE, target, count, MPI_BYTE, root, MPI_COMM_WORLD);
            },
            of_root);
      case Collective::gatherv:
        return subject(
            [=, count = own_count(), counts = counts_of(), places = places_of()] {
              MPI_Gatherv(source, count, MPI_BYTE, target, counts.data(), places.data(), MPI_BYTE,
                          root, MPI_COMM_WORLD);
            },
            of_root);
      case Collective::scatterv:
        return subject(
            [=, count = own_count(), counts = counts_of(), places = places_of()] {
              MPI_Scatterv(source, counts.data(), places.data(), MPI_BYTE, target, count, MPI_BYTE,
                           root, MPI_COMM_WORLD);
            },
            of_root);
      case Collective::scatter:
        return subject(
            [=, count = count_of_bytes()] {
              MPI_Scatter(source, count, MPI_BYTE, target, count, MPI_BYTE, root, MPI_COMM_WORLD);
            },
            of_root);
      case Collective::barrier:
      case Collective::floor:
      case Collective::oneway:
      case Collective::memcpy:
      case Collective::wimm:
        break;
    }
    throw Error(ErrorCode::unsupported,
                std::string("MPI's ") + name_of(collective) + " has no payload");
  }

  void abort(int status) noexcept override {
    MPI_Abort(MPI_COMM_WORLD, status);
    ::_exit(status);
  }

 private:
  MPI_Op op_of(BuiltIn op) const { return op == BuiltIn::none ? user_op_ : mpi_op(op); }

  std::unique_ptr<Exchange> exchange_;
  MPI_Op user_op_ = MPI_OP_NULL;
};

}  // namespace

std::unique_ptr<MpiSide> start_mpi() {
  return std::make_unique<RealMpi>();
}

}  // namespace tutti::bench
