#include <algorithm>
#include <random>
#include <string>

#include "api/implementation.hpp"
#include "engine/advance.hpp"

namespace tutti {
namespace {

std::uint64_t random_key() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

}  // namespace

Context::Implementation::Implementation(const ContextOptions& given)
    : options(given),
      fabric({.device = given.device, .arena_bytes = given.arena_bytes}),
      process_key(random_key()) {}

Status Context::Implementation::progress() noexcept {
  Status status = fabric.poll();
  for (std::size_t i = 0; status == Status::ok && i < in_flight.size();) {
    Operation::Implementation& operation = *in_flight[i];
    const Status advanced = engine::advance(operation.execution, fabric, operation.channel);
    if (advanced == Status::ok) {
      in_flight[i] = in_flight.back();
      in_flight.pop_back();
    } else if (advanced == Status::in_progress) {
      ++i;
    } else {
      status = advanced;
    }
  }
  if (status < Status::ok) [[unlikely]]
    transport_failed_slow();
  return status;
}

void Context::Implementation::transport_failed_slow() noexcept {
  const verbs::TransportFailure& cause = *fabric.failure();
  for (Communicator::Implementation* communicator : communicators) {
    if (communicator->failed()) continue;
    // A dead peer shows as a transport error here, and by name on the side channel, perhaps a
    // moment later.  The name is worth a short wait on this path.
    const Timeout until = clock.now() + std::chrono::milliseconds(250);
    bool explained = communicator->adopt_incident();
    while (!explained && clock.now() < until) {
      timespec pause{.tv_sec = 0, .tv_nsec = 5'000'000};
      nanosleep(&pause, nullptr);
      explained = communicator->adopt_incident();
    }
    if (explained) continue;
    const Rank peer = communicator->rank_of(cause.process);
    const bool unreachable = cause.completion == IBV_WC_RETRY_EXC_ERR;
    if (unreachable)
      communicator->exchange.announce({Incident::Kind::died, peer});
    else
      communicator->exchange.announce({Incident::Kind::aborted, communicator->exchange.self()});
    // The operation that met it cannot be told; any in flight here is a fair witness.
    const auto witness = std::find_if(
        in_flight.begin(), in_flight.end(),
        [&](const auto* operation) { return &operation->communicator == communicator; });
    communicator->fail(unreachable ? Status::peer_failed : Status::transport_failed, peer,
                       cause.what.data(), witness == in_flight.end() ? nullptr : *witness,
                       static_cast<std::uint32_t>(cause.completion), cause.system_errno);
  }
}

Context::Context(const ContextOptions& options)
    : implementation_(std::make_unique<Implementation>(options)) {}
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

const ContextOptions& Context::options() const noexcept {
  return implementation_->options;
}

std::string Context::device_name() const {
  return implementation_->fabric.port().name();
}

std::string Context::device_choice() const {
  const verbs::Port& port = implementation_->fabric.port();
  return port.name() + " (" + port.reason + "), GID[" + std::to_string(port.gid.index) + "] " +
         verbs::text_of(port.gid.gid) + " " + verbs::name_of(port.gid.type);
}

}  // namespace tutti
