// A hub of two ranks, which prove that they know the secret and then send anything, beside two
// strangers.  It neither crashes nor hangs, and lets no stranger in.  Sockets are of the Unix
// domain, because a fuzzer would use up the ports of TCP.
//
// An input is a list of actions.  The two lowest bits of an action are the connection: 0 and 1 are
// the ranks, 2 and 3 strangers.  The next two bits say what: a frame (its type, the length of its
// payload, payload), bytes (their number, bytes), a contribution or letters that fit the step
// (their number, bytes), or the end of the connection, after which a stranger connects again.
//
// Where an input has an odd length, the ranks meet again (bootstrap/reunion.hpp): they are ranks 0
// and 2 of three, of which one is gone, and nobody listens at its place.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "bootstrap/frame.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/hub.hpp"
#include "bootstrap/socket.hpp"
#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace bootstrap;
using namespace std::chrono_literals;

constexpr std::uint32_t rank_count = 2;
constexpr std::uint32_t gone_rank = 1;  // of three
const std::string secret = "correct horse";

/// A listener of a name that the kernel chooses, which is returned, too.
std::pair<UnsharedDescriptor, sockaddr_un> listen_somewhere(socklen_t& bytes) {
  UnsharedDescriptor listener = UnsharedDescriptor::made_by(
      [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  promise(::bind(listener.get(), any, sizeof address.sun_family) == 0, "a name is free");
  promise(::listen(listener.get(), 16) == 0, "it listens");
  bytes = sizeof address;
  promise(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0,
          "it has a name");
  return {std::move(listener), address};
}

class Client {
 public:
  Client(const sockaddr_un& address, socklen_t bytes)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    promise(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), bytes) == 0,
            "the hub listens");
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { ::close(socket_); }

  void say(std::span<const std::byte> bytes) {
    drain();
    (void)::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void say(wire::FrameType type, std::span<const std::byte> front,
           std::span<const std::byte> rest = {}) {
    std::vector<std::byte> stream;
    append_frame(stream, type, front, rest);
    say(stream);
  }
  void join(std::uint32_t rank, bool again) {
    const wire::Hello hello{.magic = wire::magic,
                            .version = wire::protocol_version,
                            .rank = rank + (again && rank >= gone_rank ? 1 : 0),
                            .rank_count = rank_count + (again ? 1 : 0)};
    say(wire::FrameType::hello, bytes_of(hello));
    const auto challenge = await<wire::Challenge>(wire::FrameType::challenge);
    say(wire::FrameType::proof,
        bytes_of(wire::Proof{prove(Prover::rank, secret, hello, challenge)}));
    const auto proof = await<wire::Proof>(wire::FrameType::proof);
    promise(proof.digest == prove(Prover::hub, secret, hello, challenge), "the hub proves itself");
  }
  /// Lets the hub read all that was said, and waits until it closes.
  void end() {
    ::shutdown(socket_, SHUT_WR);
    while (receive(5000) != Reception::end) {
    }
  }
  /// Whether anything came that only members get.
  bool was_let_in() const noexcept { return was_let_in_; }

 private:
  template <class T>
  T await(wire::FrameType type) {
    for (;;) {
      if (const auto frame = reader_.next()) {
        promise(frame->type == type, "the hub answers in order");
        return front_of<T>(frame->payload).value_or(T{});
      }
      promise(receive(5000) == Reception::some, "the hub answers");
    }
  }
  Reception receive(int milliseconds) {
    if (!is_readable(socket_, milliseconds)) {
      promise(milliseconds == 0, "the hub does not hang");
      return Reception::nothing_yet;
    }
    std::size_t bytes = 0;
    const Reception reception = receive_some(socket_, reader_.space(), bytes);
    reader_.received(bytes);
    return reception;
  }
  void drain() {
    while (receive(0) == Reception::some) look();
  }
  void look() {
    while (const auto frame = reader_.next())
      was_let_in_ = was_let_in_ || (frame->type != wire::FrameType::challenge &&
                                    frame->type != wire::FrameType::refusal);
  }

  int socket_;
  FrameReader reader_{std::size_t{64} << 20};
  bool was_let_in_ = false;
};

}  // namespace

void judge(std::span<const std::uint8_t> input) {
  socklen_t name_bytes = 0;
  auto [listener, address] = listen_somewhere(name_bytes);
  const bool again = input.size() % 2 == 1;
  HubOptions options{.rank_count = rank_count, .secret = secret, .linger = 5s};
  if (again) {
    ++options.rank_count;
    options.places.resize(options.rank_count);
    for (Address& place : options.places) {
      std::memcpy(&place.storage, &address, sizeof address);
      place.bytes = name_bytes;
    }
    const sockaddr_un nobody{.sun_family = AF_UNIX,
                             .sun_path = {'\0', 'n', 'o', 'b', 'o', 'd', 'y'}};
    std::memcpy(&options.places[gone_rank].storage, &nobody, sizeof nobody);
    options.places[gone_rank].bytes = sizeof nobody;
  }
  const Hub hub(std::move(listener), options);
  std::array<std::unique_ptr<Client>, 4> clients;
  for (auto& client : clients) client = std::make_unique<Client>(address, name_bytes);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) clients[rank]->join(rank, again);
  std::array<std::uint64_t, rank_count> steps{1, 1};
  Bytes bytes(input);
  while (!bytes.empty()) {
    const std::uint8_t action = bytes.byte();
    const std::uint32_t number = action & 3;
    Client& client = *clients[number];
    switch (action >> 2 & 3) {
      case 0: {
        const wire::FrameType type{bytes.byte()};
        client.say(type, bytes.bytes(bytes.byte()));
        break;
      }
      case 1:
        client.say(bytes.bytes(bytes.byte()));
        break;
      case 2: {
        if (number >= rank_count) break;
        const bool in_letters = (action & 16) != 0;
        const auto payload = bytes.bytes(bytes.byte());
        if (in_letters) {
          const wire::Letters head{steps[number]++, wire::letters_bit | 4,
                                   static_cast<std::uint32_t>(payload.size() / 8), 1};
          client.say(wire::FrameType::letters, bytes_of(head), payload);
        } else {
          const wire::Step step{steps[number]++, payload.size()};
          client.say(
              (action & 32) != 0 ? wire::FrameType::comparison : wire::FrameType::contribution,
              bytes_of(step), payload);
        }
        break;
      }
      default:
        client.end();
        if (number >= rank_count) {
          promise(!client.was_let_in(), "a stranger is not let in");
          // Nobody listens for a meeting that is over.
          if (!again) clients[number] = std::make_unique<Client>(address, name_bytes);
        }
    }
  }
  for (auto& client : clients) client->end();
}

std::vector<std::string> seeds() {
  const auto text = [](std::initializer_list<int> bytes) {
    std::string seed;
    for (const int byte : bytes) seed += static_cast<char>(byte);
    return seed;
  };
  std::string hello(1, '\x02');
  hello += text({1, 255});
  const wire::Hello said{.magic = wire::magic, .version = wire::protocol_version, .rank_count = 2};
  hello.append(reinterpret_cast<const char*>(&said), 255);
  return {text({8, 3, 1, 2, 3, 9, 3, 4, 5, 6}),  // both contribute three bytes
          text({40, 2, 7, 7, 41, 2, 7, 7}),      // they compare
          text({8, 1, 1, 9, 2, 1, 2}),           // they disagree
          text({24, 8, 1, 0, 0, 0, 9, 9, 9, 9, 25, 8, 0, 0, 0, 0, 8, 8, 8, 8}),  // letters
          text({0, 8, 16, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),      // a query
          text({0, 10, 8, 2, 0, 0, 0, 1, 0, 0, 0, 1, 11, 0}),  // an incident, a goodbye
          text({6, 3, 'G', 'E', 'T', 14, 3, 12}),              // strangers, ends
          hello};
}

}  // namespace tutti::fuzz
