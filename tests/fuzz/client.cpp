// A rank whose hub sends anything.  Its calls end, well or with an Error, and what they write lies
// within their buffers.  The first byte of an input says how far the hub is honest (0 mod 4: not at
// all, 1: it challenges, else it proves that it knows the secret, and welcomes), and, with a 4,
// that it is the hub of a meeting of ranks that are still there, whose welcome says who they are:
// with an 8 honestly, else that is left to the frames.  Then come frames: their type (plus 64:
// after the rank's next frame), the length of their payload, payload.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <tutti/bootstrap.hpp>
#include <tutti/detail/clock.hpp>
#include <tutti/detail/descriptor.hpp>
#include <tutti/status.hpp>
#include <vector>

#include "bootstrap/frame.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/socket.hpp"
#include "bootstrap/tcp_exchange.hpp"
#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace bootstrap;
using namespace std::chrono_literals;

const std::string secret = "correct horse";
constexpr std::uint32_t rank_count = 3;

/// One port for all inputs.
struct Listener {
  Listener() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    promise(
        ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
            ::listen(socket.get(), 64) == 0,
        "a port is free");
    socklen_t bytes = sizeof address;
    promise(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0,
            "it has a port");
    rendezvous = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  /// Nothing if nobody comes in time.
  detail::Descriptor accept(int milliseconds) const {
    if (!is_readable(socket.get(), milliseconds)) return {};
    return detail::Descriptor(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  detail::Descriptor socket;
  std::string rendezvous;
};

void use(Exchange& exchange) {
  if (exchange.rank_count() != rank_count || exchange.self() != Rank{1}) {
    const std::array<std::byte, 8> mine{};
    std::vector<std::byte> all(8 * exchange.rank_count());
    exchange.allgather(mine, all, 1s);
    return;
  }
  std::array<std::byte, 8> mine{};
  std::array<std::byte, 8 * rank_count> all{};
  (void)exchange.allgather_unless_equal(mine, all, 1s);
  const std::array partners{Rank{0}, Rank{2}};
  std::array<std::byte, 8> theirs{};
  exchange.swap(partners, 4, mine, theirs, 1s);
  exchange.allgather(mine, all, 1s);
  exchange.barrier(1s);
}

/// A rank, as far as it comes.
void be_rank(const std::string& rendezvous, bool again) {
  try {
    if (again) {
      const std::vector<Address> places(rank_count,
                                        resolve(parse_endpoint(rendezvous), rendezvous).front());
      const auto met = TcpExchange::attend(
          {.self = Rank{1}, .places = places, .secret = secret, .leader = Rank{0}, .linger = 1s},
          Deadline::after(20ms, detail::MonotonicClock::read()));
      promise(met.exchange == nullptr || met.present.size() == met.exchange->rank_count(),
              "who has come are the ranks of the exchange");
      if (met.exchange) use(*met.exchange);
      return;
    }
    const TcpOptions options{.rank = Rank{1},
                             .rank_count = rank_count,
                             .rendezvous = rendezvous,
                             .secret = secret,
                             .timeout = 20ms};
    TcpExchange exchange(options);
    try {
      use(exchange);
    } catch (const Error&) {
      for (std::uint32_t rank = 0; rank < rank_count; ++rank) (void)exchange.has_left(Rank{rank});
      const Incident incident = exchange.incident();
      promise(incident.kind == Incident::Kind::none || index_of(incident.rank) < rank_count,
              "an incident is of a rank of the job");
      exchange.announce({.kind = Incident::Kind::aborted, .rank = Rank{1}});
    }
  } catch (const Error& error) {
    promise(std::string(error.what()).find(secret) == std::string::npos,
            "an error does not tell the secret", error.what());
  }
}

/// The bit of an action by which the hub first waits for the rank's next frame.
constexpr std::uint8_t waits = 64;

/// Whatever it is.
void await_frame(int socket, FrameReader& reader) {
  while (!reader.next()) {
    if (!is_readable(socket, 20)) return;
    std::size_t bytes = 0;
    if (receive_some(socket, reader.space(), bytes) == Reception::end) return;
    reader.received(bytes);
  }
}

/// The next frame of that rank, if it is of this type.
template <class T>
std::optional<T> await(int socket, FrameReader& reader, wire::FrameType type) {
  for (;;) {
    if (const auto frame = reader.next()) {
      if (frame->type != type) return std::nullopt;
      return front_of<T>(frame->payload);
    }
    if (!is_readable(socket, 1000)) return std::nullopt;
    std::size_t bytes = 0;
    if (receive_some(socket, reader.space(), bytes) == Reception::end) return std::nullopt;
    reader.received(bytes);
  }
}

}  // namespace

void judge(std::span<const std::uint8_t> input) {
  static const Listener listener;
  while (listener.accept(0)) {
  }
  Bytes bytes(input);
  const std::uint8_t first = bytes.byte(), honesty = first & 3;
  const bool again = (first & 4) != 0, says_who = (first & 8) != 0;
  std::thread rank([&] { be_rank(listener.rendezvous, again); });
  if (const detail::Descriptor socket = listener.accept(1000)) {
    std::vector<std::byte> stream;
    FrameReader reader{4096};
    const auto send_all = [&] {
      (void)::send(socket.get(), stream.data(), stream.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      stream.clear();
    };
    const auto hello = await<wire::Hello>(socket.get(), reader, wire::FrameType::hello);
    if (hello && honesty > 0) {
      const wire::Challenge challenge{.job = {1}, .nonce = {2}};
      append_frame(stream, wire::FrameType::challenge, bytes_of(challenge));
      send_all();
      (void)await<wire::Proof>(socket.get(), reader, wire::FrameType::proof);
      if (honesty > 1) {
        const wire::Proof proof{prove(Prover::hub, secret, *hello, challenge)};
        append_frame(stream, wire::FrameType::proof, bytes_of(proof));
        constexpr std::array<std::uint32_t, rank_count> all{0, 1, 2};
        if (!again)
          append_frame(stream, wire::FrameType::welcome, {});
        else if (says_who)
          append_frame(stream, wire::FrameType::welcome, bytes_of(wire::Missing{0, rank_count, 0}),
                       std::as_bytes(std::span(all)));
      }
    }
    while (!bytes.empty()) {
      const std::uint8_t action = bytes.byte();
      if ((action & waits) != 0) {
        send_all();
        await_frame(socket.get(), reader);
      }
      append_frame(stream, wire::FrameType{action & 63u}, bytes.bytes(bytes.byte()));
    }
    send_all();
    // Whatever waits for more then learns that none comes.
    ::shutdown(socket.get(), SHUT_WR);
    rank.join();
    const linger at_once{1, 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return;
  }
  rank.join();
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto add =
      [&](char honesty,
          const std::vector<std::pair<wire::FrameType, std::vector<std::byte>>>& frames) {
        std::string seed(1, honesty);
        for (const auto& [type, payload] : frames) {
          const bool is_answer =
              type == wire::FrameType::gathered || type == wire::FrameType::equal ||
              type == wire::FrameType::delivered || type == wire::FrameType::disagreement;
          seed += static_cast<char>(static_cast<unsigned>(type) | (is_answer ? waits : 0u));
          seed += static_cast<char>(payload.size());
          seed.append(reinterpret_cast<const char*>(payload.data()), payload.size());
        }
        all.push_back(seed);
      };
  const auto payload = [](std::span<const std::byte> front, std::size_t more = 0) {
    std::vector<std::byte> bytes(front.begin(), front.end());
    bytes.resize(bytes.size() + more);
    return bytes;
  };
  using enum wire::FrameType;
  std::vector<std::byte> records =
      payload(bytes_of(wire::Letters{2, wire::letters_bit | 4, 2, 1}), 16);
  records[sizeof(wire::Letters) + 8] = std::byte{2};
  add(2, {{equal, payload(bytes_of(wire::Step{1, 8}))},
          {delivered, records},
          {gathered, payload(bytes_of(wire::Step{3, 8}), 24)},
          {gathered, payload(bytes_of(wire::Step{4, 0}))}});
  add(2, {{gathered, payload(bytes_of(wire::Step{1, 8}), 24)},
          {left, payload(bytes_of(wire::News{0, 2}))},
          {missing, payload(bytes_of(wire::Missing{2, 1, 0}), 4)}});
  add(2, {{disagreement, payload(bytes_of(wire::Disagreement{1, 8, 9, 1, 2}))}});
  add(2, {{incident, payload(bytes_of(wire::News{1, 2}))}});
  add(2, {{gave_up, payload(bytes_of(wire::Missing{0, 1, 0}), 4)}});
  add(0, {{refusal, payload(bytes_of(wire::Refusal{wire::Reason::secret, 0}))}});
  add(0, {{challenge, payload(bytes_of(wire::Challenge{}))},
          {proof, payload(bytes_of(wire::Proof{}))}});
  add(1, {{proof, payload(bytes_of(wire::Proof{}))}, {welcome, {}}});
  add(14, {{equal, payload(bytes_of(wire::Step{1, 8}))}});
  std::vector<std::byte> only_this = payload(bytes_of(wire::Missing{0, 1, 0}), 4);
  only_this[sizeof(wire::Missing)] = std::byte{1};
  add(6, {{welcome, only_this}, {gathered, payload(bytes_of(wire::Step{1, 8}), 8)}});
  add(6, {{welcome, payload(bytes_of(wire::Missing{0, 1, 0}), 4)}});
  add(6, {{gave_up, payload(bytes_of(wire::Missing{0, 1, 0}), 4)}});
  return all;
}

}  // namespace tutti::fuzz
