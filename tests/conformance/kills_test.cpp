// Promise: a process killed at any moment of any kind of request blocks no survivor.  The
// survivor's requests end within what their queue pair's timeout says, its receives are flushed,
// its memory holds whole messages only, everything can be destroyed, and nothing is left behind.
//
// TUTTI_TEST_KILLS says how many (30), TUTTI_TEST_SEED where the random numbers start (1); both are
// printed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "harness.hpp"

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937;

constexpr ConnectionOptions connection{
    .access = all_access | IBV_ACCESS_REMOTE_ATOMIC, .timeout = 14, .retries = 6};
/// 67 ms, seven times, and what a busy machine takes on top of that.
constexpr auto patience = 470ms + 20s;

unsigned setting(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : otherwise;
}

bool only_shared_files() {
  const char* const transport = std::getenv("TUTTI_SOFT_TRANSPORT");
  return device_is_soft() && transport && std::strcmp(transport, "shared") == 0;
}

// What a process offers to its peer and takes from it, all in one buffer.
constexpr std::size_t message_bytes = 2048;
constexpr std::size_t slots = 16;  // of a queue; twice what a sender has outstanding
constexpr std::uint32_t sends = 8;
constexpr std::size_t route_bytes = 40;  // precede a datagram
struct Memory {
  alignas(4096) std::array<std::uint64_t, message_bytes / 8> constant;
  std::array<std::array<std::uint64_t, message_bytes / 8>, slots> written;
  std::array<std::uint64_t, 8> counters;
  std::array<std::array<std::array<std::uint64_t, message_bytes / 8>, slots>, 2> answers;
  std::array<std::array<std::array<std::uint64_t, message_bytes / 8>, slots>, 3> sources;
  std::array<std::array<std::array<std::uint64_t, message_bytes / 8 + 8>, slots>, 3> receives;
};
constexpr std::uint64_t of_receive = std::uint64_t{1} << 63;  // in the numbers of requests
constexpr std::uint64_t constant_word = 0x1122334455667788;
constexpr std::uint64_t one_in_each_half = 0x100000001;

/// What a peer must know.
struct Offer {
  std::array<Address, 3> addresses;
  RemoteRegion region;
};

enum Way : std::size_t { plain, shared, datagram };

class Party {
 public:
  Party(unsigned seed, Storage storage)
      : random_(seed),
        buffer_(sizeof(Memory), storage),
        memory_(*reinterpret_cast<Memory*>(buffer_.data())),
        region_(device_, buffer_, all_access | IBV_ACCESS_REMOTE_ATOMIC),
        shared_receives_(device_, slots),
        channel_(driver().create_comp_channel(device_.context)),
        queue_(driver().create_cq(device_.context, 256, nullptr, channel_, 0)) {
    memory_.constant.fill(constant_word);
    EndpointOptions options{
        .sends = sends, .receives = slots, .completions = 256, .signal_all = true};
    options.queue = queue_;
    ways_[plain] = std::make_unique<Endpoint>(device_, options);
    options.queue = nullptr;
    options.shared_receives = shared_receives_.handle;
    ways_[shared] = std::make_unique<Endpoint>(device_, options);
    options.shared_receives = nullptr;
    options.type = IBV_QPT_UD;
    ways_[datagram] = std::make_unique<Endpoint>(device_, options);
    make_datagrams_ready();
    EXPECT_EQ(::fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(ibv_req_notify_cq(queue_, 0), 0);
  }
  ~Party() {
    if (handle_) {
      EXPECT_EQ(driver().destroy_ah(handle_), 0);
    }
    for (auto& way : ways_) way.reset();
    take_events();
    EXPECT_EQ(driver().destroy_cq(queue_), 0);
    EXPECT_EQ(driver().destroy_comp_channel(channel_), 0);
  }
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  Offer offer() const {
    return {{ways_[plain]->address(), ways_[shared]->address(), ways_[datagram]->address()},
            remote_of(region_)};
  }

  void connect(const Offer& peer) {
    peer_ = peer;
    for (const Way way : {plain, shared}) {
      EXPECT_EQ(ways_[way]->initialise(connection.access), 0);
      for (std::size_t slot = 0; slot < slots; ++slot) receive(way, slot);
      EXPECT_EQ(ways_[way]->make_ready_to_receive(peer.addresses[way], connection), 0);
      EXPECT_EQ(ways_[way]->make_ready_to_send(connection), 0);
    }
    for (std::size_t slot = 0; slot < slots; ++slot) receive(datagram, slot);
    ibv_ah_attr attributes{};
    set_path(attributes, peer.addresses[datagram]);
    handle_ = driver().create_ah(device_.domain, &attributes);
    EXPECT_NE(handle_, nullptr);
  }

  /// From now on receives are not posted again.  Where a failed queue pair does not flush what is
  /// posted later, those would be missed.
  void receive_no_more() { receives_again_ = false; }

  /// Some requests, and all completions that are there.
  void step() {
    for (const Way way : {plain, shared}) post(way);
    post_datagram();
    take_events();
    poll_all();
  }

  /// Messages have come on both connections: their processes have found each other.
  bool is_busy() const { return received_[plain] != 0 && received_[shared] != 0; }

  /// Both connections have reported the death.
  bool knows_of_death() const { return failed_[plain] && failed_[shared]; }

  /// Waits, without polling, until all receives of the failed private queue are flushed.
  void expect_flush(Clock::time_point deadline) {
    while (received_[plain] < posted_[plain]) {
      EXPECT_EQ(ibv_req_notify_cq(queue_, 0), 0);
      poll_all();
      if (received_[plain] == posted_[plain]) break;
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      pollfd entry{.fd = channel_->fd, .events = POLLIN, .revents = 0};
      const bool comes = left.count() > 0 && ::poll(&entry, 1, static_cast<int>(left.count())) == 1;
      ASSERT_TRUE(comes) << received_[plain] << " of " << posted_[plain] << " receives completed";
      take_events();
    }
  }

  /// After the death.  A message that was on its way may have overwritten any word of its place but
  /// not the last one, which comes last.
  void expect_whole_memory() const {
    for (const std::uint64_t word : memory_.constant) ASSERT_EQ(word, constant_word);
    for (const std::uint64_t counter : memory_.counters)
      ASSERT_EQ(counter >> 32, counter & 0xffffffff) << "half of an atomic";
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const auto& place = memory_.written[slot];
      const std::uint64_t last = place.back();
      std::uint64_t next = last;
      for (const std::uint64_t word : place)
        if (word != last) next = word;
      for (const std::uint64_t word : place) ASSERT_TRUE(word == last || word == next);
      ASSERT_GE(next, last) << "an older message";
      if (next != 0) {
        ASSERT_EQ(next % slots, slot);
      }
    }
  }

 private:
  void make_datagrams_ready() const {
    ibv_qp_attr attributes{};
    attributes.port_num = 1;
    attributes.qkey = 7;
    const auto move = [&](ibv_qp_state state, int mask) {
      attributes.qp_state = state;
      EXPECT_EQ(driver().modify_qp(ways_[datagram]->pair, &attributes, IBV_QP_STATE | mask), 0);
    };
    move(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    move(IBV_QPS_RTR, 0);
    move(IBV_QPS_RTS, IBV_QP_SQ_PSN);
  }

  template <class T>
  ibv_sge piece_of(const T& object, std::size_t bytes = sizeof(T)) const {
    return region_.piece(
        static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&object) - buffer_.data()),
        bytes);
  }
  template <class T>
  std::uint64_t remote_of_peer(const T& object) const {
    return peer_.region.address + piece_of(object).addr - region_.address();
  }

  void receive(Way way, std::size_t slot) {
    const std::vector<ibv_sge> pieces{piece_of(memory_.receives[way][slot])};
    const std::uint64_t id = slot | of_receive;
    const int error =
        way == shared ? shared_receives_.receive(pieces, id) : ways_[way]->receive(pieces, id);
    EXPECT_EQ(error, 0);
    ++posted_[way];
  }

  void post(Way way) {
    const std::uint64_t number = next_[way];
    auto& source = memory_.sources[way][number % slots];
    const std::size_t bytes = 8 * (1 + random_() % source.size());
    const auto is_ours = [&](int error) {
      if (error == 0) ++next_[way];
      EXPECT_TRUE(error == 0 || error == ENOMEM) << error;
    };
    const auto send = [&](ibv_wr_opcode opcode, const ibv_sge& piece, std::uint64_t remote = 0) {
      is_ours(ways_[way]->send(opcode, {piece}, remote, peer_.region.key, 0, number));
    };
    source.fill(number);
    switch (random_() % 6) {
      case 0:
        return send(IBV_WR_SEND, piece_of(source, bytes));
      case 1:
        return send(IBV_WR_SEND_WITH_IMM, piece_of(source, bytes));
      case 2:
        // By one connection only: messages of the other are not in order with its own.
        if (way == shared) return send(IBV_WR_SEND, piece_of(source, bytes));
        return send(random_() % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM,
                    piece_of(source), remote_of_peer(memory_.written[number % slots]));
      case 3:
        return send(IBV_WR_RDMA_READ, piece_of(memory_.answers[way][number % slots]),
                    remote_of_peer(memory_.constant));
      default:
        return is_ours(post_atomic(way));
    }
  }

  int post_atomic(Way way) {
    ibv_sge piece = piece_of(memory_.answers[way][next_[way] % slots], sizeof(std::uint64_t));
    ibv_send_wr request{};
    ibv_send_wr* bad = nullptr;
    request.wr_id = next_[way];
    request.sg_list = &piece;
    request.num_sge = 1;
    const bool adds = random_() % 2 == 0;
    request.opcode = adds ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
    const auto& word = memory_.counters[random_() % memory_.counters.size()];
    request.wr.atomic.remote_addr = remote_of_peer(word);
    request.wr.atomic.rkey = peer_.region.key;
    request.wr.atomic.compare_add = adds ? one_in_each_half : one_in_each_half * (random_() % 8);
    request.wr.atomic.swap = one_in_each_half * (random_() % 8);
    return ibv_post_send(ways_[way]->pair, &request, &bad);
  }

  void post_datagram() {
    auto& source = memory_.sources[datagram][next_[datagram] % slots];
    source.fill(next_[datagram]);
    ibv_sge piece = piece_of(source, 8 * (1 + random_() % source.size()));
    ibv_send_wr request{};
    ibv_send_wr* bad = nullptr;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.wr.ud.ah = handle_;
    request.wr.ud.remote_qpn = peer_.addresses[datagram].queue_pair;
    request.wr.ud.remote_qkey = 7;
    const int error = ibv_post_send(ways_[datagram]->pair, &request, &bad);
    EXPECT_TRUE(error == 0 || error == ENOMEM) << error;
    next_[datagram] += error == 0 ? 1 : 0;
  }

  void take_events() const {
    ibv_cq* of = nullptr;
    void* context = nullptr;
    while (driver().get_cq_event(channel_, &of, &context) == 0) {
      driver().ack_cq_events(of, 1);
      EXPECT_EQ(ibv_req_notify_cq(of, 0), 0);
    }
  }

  void poll_all() {
    for (const Way way : {plain, shared, datagram}) {
      std::array<ibv_wc, 8> completions;
      for (;;) {
        const int count = ibv_poll_cq(ways_[way]->queue, static_cast<int>(completions.size()),
                                      completions.data());
        ASSERT_GE(count, 0);
        for (int index = 0; index < count; ++index)
          take(way, completions[static_cast<std::size_t>(index)]);
        if (count == 0) break;
      }
    }
  }

  void take(Way way, const ibv_wc& completion) {
    // The opcode of a failed request says nothing.
    const bool is_receive = (completion.wr_id & of_receive) != 0;
    if (completion.status != IBV_WC_SUCCESS) {
      ASSERT_NE(way, datagram) << completion.status;
      ASSERT_TRUE(completion.status == IBV_WC_RETRY_EXC_ERR ||
                  completion.status == IBV_WC_WR_FLUSH_ERR)
          << ibv_wc_status_str(completion.status);
      if (!is_receive && completion.status == IBV_WC_RETRY_EXC_ERR) failed_[way] = true;
      received_[way] += is_receive ? 1 : 0;
      return;
    }
    if (!is_receive) {
      if (way != datagram)
        expect_whole_answer(memory_.answers[way][completion.wr_id % slots], completion);
      return;
    }
    ++received_[way];
    if (completion.opcode == IBV_WC_RECV) expect_whole_message(way, completion);
    if (!failed_[way] && receives_again_) receive(way, completion.wr_id & ~of_receive);
  }

  static void expect_whole_answer(const std::array<std::uint64_t, message_bytes / 8>& answer,
                                  const ibv_wc& completion) {
    if (completion.opcode == IBV_WC_RDMA_READ) {
      for (const std::uint64_t word : answer) ASSERT_EQ(word, constant_word);
    }
    if (completion.opcode == IBV_WC_FETCH_ADD || completion.opcode == IBV_WC_COMP_SWAP) {
      ASSERT_EQ(answer[0] >> 32, answer[0] & 0xffffffff) << "half of an atomic";
    }
  }

  void expect_whole_message(Way way, const ibv_wc& completion) {
    const auto& place = memory_.receives[way][completion.wr_id & ~of_receive];
    const std::size_t first = way == datagram ? route_bytes / 8 : 0;
    const std::uint64_t number = place[first];
    for (std::size_t word = first; word < completion.byte_len / 8; ++word)
      ASSERT_EQ(place[word], number) << "part of another message";
    // Requests of other kinds take numbers, too.
    ASSERT_GT(number, last_number_[way]) << "messages out of order";
    last_number_[way] = number;
  }

  Random random_;
  Device device_;
  Buffer buffer_;
  Memory& memory_;
  Region region_;
  SharedReceives shared_receives_;
  ibv_comp_channel* channel_;
  ibv_cq* queue_;
  std::array<std::unique_ptr<Endpoint>, 3> ways_;
  ibv_ah* handle_ = nullptr;
  Offer peer_{};
  std::array<std::uint64_t, 3> next_{slots, slots, slots};  // number of the next message; 0 is none
  std::array<std::uint64_t, 3> last_number_{};
  std::array<std::uint64_t, 3> posted_{}, received_{};
  std::array<bool, 3> failed_{};
  bool receives_again_ = true;
};

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    names.insert(entry.path().filename());
  return names;
}

/// Other programs of the machine have files there, too; theirs go again.
bool adds_no_shared_memory_files(const std::set<std::string>& before) {
  const auto deadline = Clock::now() + 10s;
  do {
    const std::set<std::string> now = shared_memory_files();
    if (std::includes(before.begin(), before.end(), now.begin(), now.end())) return true;
    std::this_thread::sleep_for(10ms);
  } while (Clock::now() < deadline);
  return false;
}

/// Until killed.
void work(Party& party, Line& line) {
  party.connect(line.swap(party.offer()));
  for (;;) party.step();
}

/// When the kill comes: one of four while the processes still find each other.
struct Moment {
  explicit Moment(Random& random)
      : is_early(random() % 4 == 0), later(std::chrono::microseconds(random() % 4000)) {}

  bool is_early;
  std::chrono::microseconds later;
};

/// Until the time has come to count from.
void work_until_busy(Party& party, const Moment& moment) {
  const auto deadline = Clock::now() + patience;
  while (!moment.is_early && !party.is_busy() && Clock::now() < deadline) party.step();
  EXPECT_TRUE(moment.is_early || party.is_busy());
}

/// After the kill, or shortly before.
void survive(Party& party) {
  if (!device_is_soft()) party.receive_no_more();
  const auto deadline = Clock::now() + patience;
  while (!party.knows_of_death() && Clock::now() < deadline && !testing::Test::HasFailure())
    party.step();
  ASSERT_TRUE(party.knows_of_death()) << "the death was not noticed";
  party.expect_flush(deadline);
  party.expect_whole_memory();
}

/// The survivor has started the process that is killed, and reaps it before or after its last look.
void kill_child(unsigned seed, Storage storage) {
  Random random(seed);
  const Moment moment(random);
  const bool leaves_zombie = random() % 2 == 0;
  OtherProcess other([&](Line& line) {
    Party party(seed + 1, storage);
    work(party, line);
  });
  Party party(seed + 2, storage);
  party.connect(other.line().swap(party.offer()));
  work_until_busy(party, moment);
  for (const auto end = Clock::now() + moment.later; Clock::now() < end;) party.step();
  ASSERT_FALSE(party.knows_of_death());
  if (leaves_zombie)
    EXPECT_EQ(::kill(other.id(), SIGKILL), 0);
  else
    other.kill();
  survive(party);
}

/// The survivor is the child of the process that is killed, by a third, at a moment of its own.
void kill_parent(unsigned seed, Storage storage) {
  Random random(seed);
  const Moment moment(random);
  OtherProcess parent([&](Line& report) {
    OtherProcess child([&](Line& line) {
      const std::size_t descriptors = open_descriptors_count();
      {
        Party party(seed + 2, storage);
        const Offer peer = line.swap(party.offer());
        if (moment.is_early) report.put('r');
        party.connect(peer);
        work_until_busy(party, moment);
        if (!moment.is_early) report.put('r');
        survive(party);
      }
      EXPECT_EQ(open_descriptors_count(), descriptors);
      report.put(testing::Test::HasFailure() ? 'f' : 's');
    });
    Party party(seed + 1, storage);
    work(party, child.line());
  });
  ASSERT_EQ(parent.line().get<char>(), 'r');
  std::this_thread::sleep_for(moment.later);
  parent.kill();
  ASSERT_EQ(parent.line().get<char>(), 's');
}

TEST(Kills, at_random_moments_of_all_kinds_of_requests) {
  const unsigned kills = setting("TUTTI_TEST_KILLS", device_is_soft() ? 30 : 6);
  const unsigned first_seed = setting("TUTTI_TEST_SEED", 1);
  std::cout << kills << " kills, TUTTI_TEST_SEED=" << first_seed << "\n";
  { const Device device; }  // the first one ever opened may leave something for the process's life
  const std::size_t descriptors = open_descriptors_count();
  const std::set<std::string> files = shared_memory_files();
  for (unsigned seed = first_seed; seed < first_seed + kills; ++seed) {
    const Storage storage =
        only_shared_files() || seed % 4 < 2 ? Storage::shared_file : Storage::private_pages;
    // With the first process of a namespace, all its others are killed.
    if (seed % 2 == 0 || wanted_identity() == Identity::below)
      kill_child(seed * 10, storage);
    else
      kill_parent(seed * 10, storage);
    EXPECT_EQ(open_descriptors_count(), descriptors);
    ASSERT_FALSE(testing::Test::HasFailure()) << "TUTTI_TEST_SEED=" << seed;
  }
  EXPECT_TRUE(adds_no_shared_memory_files(files));
}

}  // namespace
}  // namespace tutti::conformance
