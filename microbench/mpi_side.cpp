#include "microbench/mpi_side.hpp"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <tutti/status.hpp>

#include "bootstrap/mpi_exchange.hpp"
#include "microbench/options.hpp"
#include "microbench/reference.hpp"

namespace tutti::bench {
namespace {

class MpiBarrier final : public Subject {
 public:
  void run(std::size_t calls) override {
    for (; calls > 0; --calls) MPI_Barrier(MPI_COMM_WORLD);
  }
  void synchronise() override { run(1); }
};

class MpiAllreduce final : public Subject {
 public:
  MpiAllreduce(Buffers& buffers, int count, MPI_Datatype type, MPI_Op op)
      : buffers_(buffers), count_(count), type_(type), op_(op) {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls)
      MPI_Allreduce(buffers_.source.data(), buffers_.target.data(), count_, type_, op_,
                    MPI_COMM_WORLD);
  }
  void synchronise() override { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  Buffers& buffers_;
  int count_;
  MPI_Datatype type_;
  MPI_Op op_;
};

class MpiBroadcast final : public Subject {
 public:
  MpiBroadcast(Buffers& buffers, int count, Rank root)
      : buffers_(buffers), count_(count), root_(root) {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls)
      MPI_Bcast(buffers_.source.data(), count_, MPI_BYTE, static_cast<int>(index_of(root_)),
                MPI_COMM_WORLD);
  }
  void synchronise() override { MPI_Barrier(MPI_COMM_WORLD); }
  std::optional<Rank> root() const noexcept override { return root_; }

 private:
  Buffers& buffers_;
  int count_;
  Rank root_;
};

class MpiReduce final : public Subject {
 public:
  MpiReduce(Buffers& buffers, int count, MPI_Datatype type, MPI_Op op, Rank root)
      : buffers_(buffers), count_(count), type_(type), op_(op), root_(root) {}
  void run(std::size_t calls) override {
    for (; calls > 0; --calls)
      MPI_Reduce(buffers_.source.data(), buffers_.target.data(), count_, type_, op_,
                 static_cast<int>(index_of(root_)), MPI_COMM_WORLD);
  }
  void synchronise() override { MPI_Barrier(MPI_COMM_WORLD); }
  std::optional<Rank> root() const noexcept override { return root_; }

 private:
  Buffers& buffers_;
  int count_;
  MPI_Datatype type_;
  MPI_Op op_;
  Rank root_;
};

/// Of elements or bytes, as MPI counts them.
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

MPI_Datatype mpi_type(ElementType type) {
  switch (type) {
    case ElementType::int32:
      return MPI_INT32_T;
    case ElementType::uint32:
      return MPI_UINT32_T;
    case ElementType::int64:
      return MPI_INT64_T;
    case ElementType::uint64:
      return MPI_UINT64_T;
    case ElementType::float32:
      return MPI_FLOAT;
    case ElementType::float64:
      return MPI_DOUBLE;
    case ElementType::float16:  // refused with --against mpi
    case ElementType::bfloat16:
    case ElementType::other:
      break;
  }
  return MPI_BYTE;
}

MPI_Op mpi_op(BuiltIn op) {
  switch (op) {
    case BuiltIn::sum:
      return MPI_SUM;
    case BuiltIn::product:
      return MPI_PROD;
    case BuiltIn::min:
      return MPI_MIN;
    case BuiltIn::max:
      return MPI_MAX;
    case BuiltIn::bit_and:
      return MPI_BAND;
    case BuiltIn::bit_or:
      return MPI_BOR;
    case BuiltIn::bit_xor:
      return MPI_BXOR;
    case BuiltIn::logical_and:
      return MPI_LAND;
    case BuiltIn::logical_or:
      return MPI_LOR;
    case BuiltIn::none:
      break;
  }
  return MPI_OP_NULL;
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

  std::unique_ptr<Subject> barrier() override { return std::make_unique<MpiBarrier>(); }

  std::unique_ptr<Subject> allreduce(Buffers& buffers, BuiltIn op, ElementType type) override {
    return std::make_unique<MpiAllreduce>(
        buffers, mpi_count(buffers.source_bytes().size() / element_bytes(type)), mpi_type(type),
        op_of(op));
  }

  std::unique_ptr<Subject> broadcast(Buffers& buffers, Rank root) override {
    return std::make_unique<MpiBroadcast>(buffers, mpi_count(buffers.source_bytes().size()), root);
  }

  std::unique_ptr<Subject> reduce(Buffers& buffers, BuiltIn op, ElementType type,
                                  Rank root) override {
    return std::make_unique<MpiReduce>(
        buffers, mpi_count(buffers.source_bytes().size() / element_bytes(type)), mpi_type(type),
        op_of(op), root);
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
