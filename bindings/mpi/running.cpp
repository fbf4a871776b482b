#include "running.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "elements.hpp"
#include "interposer.hpp"
#include "loaded_mpi.hpp"
#include "tutti/status.hpp"

namespace tutti::interposer {
namespace {

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
  int element_bytes = 0;
  own_mpi().Type_size(call.type, &element_bytes);
  const auto count = static_cast<std::size_t>(call.count);
  const std::size_t bytes = static_cast<std::size_t>(element_bytes) * count;
  const Elements of_program(from_program ? from : to, count, call.type);
  if (packed) {
    if (from_program)
      of_program.pack(static_cast<std::byte*>(to), bytes, call.communicator);
    else
      of_program.unpack(static_cast<const std::byte*>(from), bytes, call.communicator);
    return;
  }
  const Elements of_operation(from_program ? to : from, count, call.type);
  std::vector<std::byte> between(bytes);
  (from_program ? of_program : of_operation).pack(between.data(), bytes, call.communicator);
  (from_program ? of_operation : of_program).unpack(between.data(), bytes, call.communicator);
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
  if (source != no_buffer) std::memcpy(in, source, bytes);
  run(shape, in, out, communicator);
  if (target != no_buffer) std::memcpy(target, out, bytes);
}

void run_laid_out(Shape& shape, const Call& call, const void* source, void* target) {
  const bool is_packed = shape.key.combining == Combining::none;
  std::byte* const in = room(shape.source, shape.key.bytes());
  std::byte* const out = is_packed ? in : room(shape.target, shape.key.bytes());
  if (source != no_buffer) copy_elements(source, in, call, true, is_packed);
  run(shape, in, out, call.communicator);
  if (target != no_buffer) copy_elements(out, target, call, false, is_packed);
}

}  // namespace tutti::interposer
