#include "running.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

constexpr Timeout between_mpi = std::chrono::microseconds(20);

[[noreturn]] void end_job(const Shape& shape, MPI_Comm handle, Status status) {
  std::fprintf(stderr, "tutti: %s: %s; %s\n", name_of(shape.key.collective), name_of(status),
               interposer().communicator(handle)->failure().text);
  own_mpi().Abort(handle, 1);
  std::abort();  // MPI_Abort does not return
}

Status wait_slow(Operation& operation) noexcept {
  for (;;) {
    progress_mpi();
    const Status status = operation.wait(between_mpi);
    if (status != Status::timed_out) return status;
  }
}

}  // namespace

std::byte* room(std::vector<std::byte>& staging, std::size_t bytes) {
  if (staging.size() < bytes) staging.resize(bytes);
  return staging.data();
}

void copy_elements(const void* from, void* to, const Call& call, bool from_program, bool packed) {
  const MpiFunctions& mpi = own_mpi();
  int bytes = 0;
  mpi.Type_size(call.type, &bytes);
  const int count = static_cast<int>(call.count);
  const int size = bytes * count;
  std::vector<std::byte> between;
  std::byte* pack = nullptr;
  if (!packed) {
    between.resize(static_cast<std::size_t>(size));
    pack = between.data();
  } else {
    pack = static_cast<std::byte*>(from_program ? to : const_cast<void*>(from));
  }
  int position = 0;
  if (from_program || !packed)
    mpi.Pack(from, count, call.type, pack, size, &position, call.communicator);
  position = 0;
  if (!from_program || !packed)
    mpi.Unpack(pack, size, &position, to, count, call.type, call.communicator);
}

void end_run_slow(Shape& shape, MPI_Comm handle, Status status) noexcept {
  if (status == Status::timed_out) status = wait_slow(*shape.operation);
  if (status != Status::ok) end_job(shape, handle, status);
}

void run_staged(Shape& shape, std::size_t bytes, const void* source, void* target,
                MPI_Comm communicator) noexcept {
  std::byte* const in = room(shape.source, shape.key.bytes());
  std::byte* const out =
      shape.key.collective == Collective::broadcast ? in : room(shape.target, shape.key.bytes());
  if (source != nullptr) std::memcpy(in, source, bytes);
  run(shape, in, out, communicator);
  if (target != nullptr) std::memcpy(target, out, bytes);
}

void run_laid_out(Shape& shape, const Call& call, const void* source, void* target) {
  const bool is_packed = shape.key.combining == Combining::none;
  std::byte* const in = room(shape.source, shape.key.bytes());
  std::byte* const out = is_packed ? in : room(shape.target, shape.key.bytes());
  if (source != nullptr) copy_elements(source, in, call, true, is_packed);
  run(shape, in, out, call.communicator);
  if (target != nullptr) copy_elements(out, target, call, false, is_packed);
}

}  // namespace tutti::interposer
