#include "microbench/network_probes.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <tutti/reduction.hpp>

#include "microbench/station.hpp"
#include "microbench/together.hpp"
#include "shm/mailbox.hpp"
#include "shm/offered_mapping.hpp"
#include "shm/peer_memory.hpp"
#include "verbs/soft/virtual_time.hpp"

namespace tutti::bench {
namespace {

using plan::Picoseconds;
using tune::Probe;
using tune::Sample;

constexpr std::uint32_t stream_max = 16;     // messages of a stream between two ranks
constexpr std::uint32_t port_stream = 4;     // messages of each rank at a shared port
constexpr std::uint32_t answerers_max = 64;  // of incast
/// In real time a batch has blocks of so many repetitions in a row: enough for a clock to time, and
/// so few that a program that takes the CPU disturbs few blocks.  A pass measures each point once.
constexpr std::uint32_t block_most = 16, blocks_least = 4;
constexpr std::uint32_t passes_least = 16, passes_most = 96;
constexpr std::uint32_t times_max = 32;  // of one batch: one for each block or repetition
constexpr std::uint32_t repetitions_max = times_max * block_most;
constexpr std::size_t memory_bytes = 1u << 20;
constexpr Picoseconds none = -1;  // this rank has not measured it

/// What one batch of a point is.
struct Point {
  Probe probe = Probe::one_way;
  std::uint64_t bytes = 8;
  std::uint32_t messages = 1;
};

/// Who takes part in what; every rank computes the same.
struct Roles {
  Rank partner = no_rank;                   // of rank 0, on another node
  std::vector<Rank> senders = {};           // of rank 0's node ...
  std::vector<Rank> targets = {};           // ... and as many of other nodes
  std::vector<Rank> answerers = {};         // of other nodes; the first is the partner
  Rank inside = no_rank, beside = no_rank;  // two ranks of a node
};

Roles roles_of(std::span<const Node> nodes) {
  Roles roles;
  std::vector<Rank> others;  // node by node, as they come
  for (std::uint32_t rank = 0; rank < nodes.size(); ++rank)
    (nodes[rank] == nodes[0] ? roles.senders : others).push_back(Rank{rank});
  std::stable_sort(others.begin(), others.end(), [&](Rank one, Rank other) {
    return index_of(nodes[index_of(one)]) < index_of(nodes[index_of(other)]);
  });
  if (!others.empty()) roles.partner = others.front();
  roles.senders.resize(std::min(roles.senders.size(), others.size()), Rank{0});
  roles.targets.assign(others.begin(),
                       others.begin() + static_cast<std::ptrdiff_t>(roles.senders.size()));
  // One of each node first: ranks of a node share what they send through.
  while (!others.empty()) {
    std::vector<Rank> rest;
    std::optional<Node> before;
    for (const Rank rank : others) {
      const Node node = nodes[index_of(rank)];
      (before == node ? rest : roles.answerers).push_back(rank);
      before = node;
    }
    others = std::move(rest);
  }
  roles.answerers.resize(std::min<std::size_t>(roles.answerers.size(), answerers_max), Rank{0});
  for (std::uint32_t one = 0; one < nodes.size() && roles.inside == no_rank; ++one)
    for (std::uint32_t other = one + 1; other < nodes.size(); ++other)
      if (nodes[one] == nodes[other]) {
        roles.inside = Rank{one};
        roles.beside = Rank{other};
        break;
      }
  return roles;
}

/// The cables between the ranks of the roles, and where they are in the list.
struct Wiring {
  explicit Wiring(const Roles& roles) {
    if (roles.partner == no_rank) return;
    const auto add = [this](Rank other, Rank one, std::uint32_t queue) {
      cables.push_back({.one = one, .other = other, .queue = queue, .receives_max = 64});
      return static_cast<std::uint32_t>(cables.size()) - 1;
    };
    for (const Rank answerer : roles.answerers) answers.push_back(add(answerer, Rank{0}, 0));
    for (std::uint32_t i = 0; i + 1 < stream_max; ++i)
      streams.push_back(add(roles.partner, Rank{0}, 1));
    for (std::size_t i = 0; i < roles.senders.size(); ++i) {
      std::vector<std::uint32_t>& mine = ports.emplace_back();
      for (std::uint32_t message = 0; message < port_stream; ++message)
        mine.push_back(add(roles.targets[i], roles.senders[i], message == 0 ? 0 : 1));
    }
  }

  std::vector<Cable> cables;
  std::vector<std::uint32_t> answers;             // to each answerer; the first is also ...
  std::uint32_t control = 0;                      // ... what the last message of a stream takes
  std::vector<std::uint32_t> streams;             // further ones to the partner
  std::vector<std::vector<std::uint32_t>> ports;  // of each sender at the shared port
};

std::vector<Point> points_of(const Roles& roles, const std::vector<Probe>& only) {
  std::vector<Point> points;
  if (roles.partner != no_rank) {
    for (const std::uint64_t bytes : {8u, 1024u, 4096u, 16384u, 65536u, 262144u})
      points.push_back({Probe::one_way, bytes, 1});
    for (const std::uint32_t messages : {1u, 2u, 4u, 8u, 16u})
      points.push_back({Probe::stream, 8, messages});
    for (const std::uint64_t bytes : {4096u, 65536u})
      for (const std::uint32_t messages : {1u, 4u, 16u})
        points.push_back({Probe::stream, bytes, messages});
    for (const Probe probe : {Probe::posting, Probe::waiting})
      for (const std::uint32_t messages : {1u, 4u, 8u, 15u}) points.push_back({probe, 8, messages});
  }
  for (const std::uint64_t bytes : {8u, 1024u, 8192u, 65536u})
    points.push_back({Probe::combine, bytes, 1});
  if (roles.senders.size() > 1)
    for (const std::uint64_t bytes : {8u, 4096u})
      for (const std::uint32_t each : {1u, port_stream})
        points.push_back(
            {Probe::shared_port, bytes, each * static_cast<std::uint32_t>(roles.senders.size())});
  const auto answerers = static_cast<std::uint32_t>(roles.answerers.size());
  for (const std::uint64_t bytes : {8u, 4096u})
    for (std::uint32_t messages = 2; answerers > 1; messages *= 2) {
      points.push_back({Probe::incast, bytes, std::min(messages, answerers)});
      if (messages >= answerers) break;
    }
  if (roles.inside != no_rank) {
    // Three lengths share a cache line with their word, and three take many lines, so that each
    // kind has a line of the fit if one line does not fit all.
    for (const std::uint64_t bytes : {8u, 24u, 48u, 1024u, 4096u, 16384u})
      points.push_back({Probe::inside_one_way, bytes, 1});
    // Several, because a clock takes longer than a message.
    for (const std::uint64_t bytes : {8u, 1024u, 4096u})
      for (const std::uint32_t messages : {8u, 16u})
        points.push_back({Probe::inside_store, bytes, messages});
    for (const std::uint32_t messages : {4u, 8u, 16u})
      points.push_back({Probe::inside_take, 8, messages});
    for (const std::uint64_t bytes : {4096u, 65536u, 262144u})
      points.push_back({Probe::inside_read, bytes, 1});
  }
  if (!only.empty())
    std::erase_if(points, [&](const Point& point) {
      return std::find(only.begin(), only.end(), point.probe) == only.end();
    });
  return points;
}

/// Slots of two ranks of a node in each other's arena.
class Mailboxes {
 public:
  static constexpr std::uint32_t slots_of_each = stream_max + 1;

  /// Collective over all ranks, of which two have mailboxes.
  Mailboxes(Exchange& exchange, Station& station, const Roles& roles,
            const std::vector<Point>& points)
      : station_(station), clock_(station.port().driver().clock()) {
    for (const Point& point : points)
      if (is_inside(point.probe) && place_of(point.bytes) == nullptr) {
        places_.push_back({.bytes = point.bytes, .offset = total_});
        total_ += slots_of_each * slot_bytes(point.bytes);
      }
    const Rank self = exchange.self();
    is_mine_ = self == roles.inside || self == roles.beside;
    Card mine;
    together(exchange, [&] {
      if (!is_mine_) return;
      own_ = station.arena().allocate(total_);
      if (own_ == nullptr)
        throw Error(ErrorCode::limit_exceeded,
                    fmt::format("{} bytes for messages inside a node could not be had", total_));
      lent_.assign(memory_bytes, std::byte{1});
      std::random_device random;
      offered_.emplace(std::uint64_t{random()} << 32 | random() | 1, station.arena().mapping(),
                       station.arena().descriptor());
      mine = {.mapping = offered_->card(),
              .slots = reinterpret_cast<std::uint64_t>(own_),
              .lent = reinterpret_cast<std::uint64_t>(lent_.data())};
    });
    const std::vector<Card> cards = gather(exchange, mine);
    together(exchange, [&] {
      if (!is_mine_) return;
      const Card& other = cards[index_of(self == roles.inside ? roles.beside : roles.inside)];
      mapping_ = shm::map_offered(other.mapping);
      slots_ = mapping_->data() + (other.slots - other.mapping.address);
      lender_ = {.id = other.mapping.process,
                 .nonce_address = other.mapping.address,
                 .nonce = other.mapping.nonce};
      lent_there_ = other.lent;
      into_.resize(memory_bytes);
    });
    sent_.resize(places_.size() * slots_of_each);
    taken_.resize(sent_.size());
    exchange.barrier(setup_timeout);
  }
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  static bool is_inside(Probe probe) {
    return probe == Probe::inside_one_way || probe == Probe::inside_store ||
           probe == Probe::inside_take;
  }

  void put(std::uint64_t bytes, std::uint32_t slot) {
    std::byte* const into = slots_ + offset_of(bytes, slot);
    shm::copy_payload(into, station_.source(), bytes);
    shm::SequenceWord* const word = shm::word_of(into, slot_bytes(bytes));
    const std::uint64_t message = ++sent_[index_of_slot(bytes, slot)];
    if (clock_.is_simulated())
      clock_.announce(word, message, bytes);
    else
      shm::announce(word, message);
  }
  void take(std::uint64_t bytes, std::uint32_t slot) {
    const shm::SequenceWord* const word =
        shm::word_of(own_ + offset_of(bytes, slot), slot_bytes(bytes));
    const std::uint64_t message = ++taken_[index_of_slot(bytes, slot)];
    if (!shm::has_come(word, message)) {
      const bool is_simulated = clock_.is_simulated();  // then polls make time go on
      spin_until("take", [&] {
        if (is_simulated) station_.poll(0);
        return shm::has_come(word, message);
      });
    }
    if (clock_.is_simulated()) clock_.charge_message();
    // The engine also copies it out of the slot: thus it crosses from one cache to the other.
    shm::copy_payload(into_.data(), own_ + offset_of(bytes, slot), bytes);
  }
  /// Whether the system permits it.
  bool read(std::uint64_t bytes) {
    if (lender_.read(lent_there_, into_.data(), bytes) != 0) return false;
    if (clock_.is_simulated()) clock_.charge_reading(bytes);
    return true;
  }

 private:
  struct Card {
    shm::MappingCard mapping = {};
    std::uint64_t slots = 0;
    std::uint64_t lent = 0;  // memory that is private to its process
  };
  struct Place {
    std::uint64_t bytes;
    std::size_t offset;
  };

  static std::size_t slot_bytes(std::uint64_t bytes) {
    return (bytes + sizeof(shm::SequenceWord) + 63) / 64 * 64;
  }
  const Place* place_of(std::uint64_t bytes) const {
    for (const Place& place : places_)
      if (place.bytes == bytes) return &place;
    return nullptr;
  }
  std::size_t index_of_slot(std::uint64_t bytes, std::uint32_t slot) const {
    return static_cast<std::size_t>(place_of(bytes) - places_.data()) * slots_of_each + slot;
  }
  std::size_t offset_of(std::uint64_t bytes, std::uint32_t slot) const {
    assert(slot < slots_of_each);
    return place_of(bytes)->offset + slot * slot_bytes(bytes);
  }

  Station& station_;
  detail::Clock& clock_;
  std::vector<Place> places_;  // of messages of one size
  std::size_t total_ = 0;
  bool is_mine_ = false;
  std::byte* own_ = nullptr;
  std::vector<std::byte> lent_, into_;
  std::optional<shm::OfferedMapping> offered_;
  std::shared_ptr<detail::Mapping> mapping_;
  std::byte* slots_ = nullptr;  // the other's, here
  shm::PeerProcess lender_;
  std::uint64_t lent_there_ = 0;
  std::vector<std::uint64_t> sent_, taken_;  // messages, by slot
};

/// Memory that mailboxes need, in the arena of a station.
std::size_t mailbox_bytes(const std::vector<Point>& points) {
  std::size_t bytes = 0;  // sizes that occur several times are counted each time
  for (const Point& point : points)
    if (Mailboxes::is_inside(point.probe))
      bytes += Mailboxes::slots_of_each * (point.bytes + 2 * verbs::Arena::alignment);
  return bytes;
}

using Times = std::array<Picoseconds, times_max>;

/// Whether the median of so many times is known to within a 50th: its interval of 95 % lies between
/// two of the times, by their order (the sign test).
bool is_narrow(std::vector<Picoseconds> times) {
  constexpr Picoseconds part = 50;
  std::sort(times.begin(), times.end());
  const auto count = static_cast<double>(times.size());
  const auto first = static_cast<std::size_t>(std::max(count / 2 - std::sqrt(count), 0.0));
  const Picoseconds middle = times[times.size() / 2];
  return times[times.size() - 1 - first] - times[first] <= std::max(middle / part, Picoseconds{1});
}

class Prober {
 public:
  Prober(Exchange& exchange, std::span<const Node> nodes, const NetworkProbeOptions& options)
      : exchange_(exchange),
        self_(exchange.self()),
        roles_(roles_of(nodes)),
        wiring_(roles_),
        points_(points_of(roles_, options.only)),
        station_(exchange, options.device, memory_bytes, wiring_.cables, mailbox_bytes(points_)),
        mailboxes_(exchange, station_, roles_, points_),
        sum_(built_in_reduction(BuiltIn::sum, ElementType::float64)),
        incoming_(memory_bytes / sizeof(double), 1.0),
        partial_(incoming_.size(), 1.0),
        is_virtual_(verbs::soft::VirtualTime::joined() != nullptr),
        clock_cost_(is_virtual_ ? 0 : cost_of_clock()) {}

  std::vector<Sample> run(Timeout end, const std::function<void(Probe)>& on_untried) {
    const Timeout begin = detail::MonotonicClock::read();
    const std::uint32_t passes = is_virtual_ ? 5 : passes_most;
    std::vector<Sample> samples;
    std::vector<Picoseconds> each(points_.size(), 0);  // real time of a repetition; rank 0 decides
    std::vector<std::vector<Picoseconds>> times(points_.size());
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
      const bool is_early = detail::MonotonicClock::read() - begin < (end - begin) / 4;
      if (!is_virtual_ && pass >= passes_least && is_enough(times, is_early)) return samples;
      for (std::size_t i = 0; i < points_.size(); ++i) {
        const std::uint32_t wanted = repetitions(points_[i], each[i], end, pass, passes);
        const std::uint32_t count = gather(exchange_, wanted).front();
        if (count == 0) {
          for (std::size_t j = i; j < points_.size() && pass == 0 && on_untried; ++j)
            on_untried(points_[j].probe);
          return samples;
        }
        const Timeout before = detail::MonotonicClock::read();
        const Picoseconds least = batch(points_[i], count);
        each[i] = (detail::MonotonicClock::read() - before).count() * 1000 / count;
        if (least < 0) continue;
        times[i].push_back(least);
        samples.push_back({.probe = points_[i].probe,
                           .bytes = points_[i].bytes,
                           .messages = points_[i].messages,
                           .time = least,
                           .ranks = ranks_of(points_[i].probe)});
      }
    }
    return samples;
  }

 private:
  /// Whether more passes would tell nothing new.  It is false in the first quarter of the time,
  /// which is too short to show slow changes of the machine.  Collective.
  bool is_enough(const std::vector<std::vector<Picoseconds>>& times, bool is_early) const {
    const bool enough = !is_early && std::all_of(times.begin(), times.end(), [](const auto& one) {
      return one.empty() || is_narrow(one);
    });
    return gather(exchange_, static_cast<char>(enough)).front() != 0;
  }

  /// How many repetitions of a point there is time for: its share of what is left.
  std::uint32_t repetitions(const Point& point, Picoseconds each, Timeout end, std::uint32_t pass,
                            std::uint32_t passes) const {
    constexpr std::uint32_t least = 3;
    // If one message of twenty is delayed, some of them have none such.
    const std::uint32_t in_virtual_time = point.messages > 4 ? 24 : 8;
    // For a shared port all ranks meet before each repetition, so there are fewer.
    const std::uint32_t most = is_virtual_                         ? in_virtual_time
                               : point.probe == Probe::shared_port ? times_max
                                                                   : repetitions_max;
    const Picoseconds left = (end - detail::MonotonicClock::read()).count() * 1000;
    if (left <= least * each) return 0;
    if (pass == 0) return is_virtual_ ? in_virtual_time : least;  // nobody knows how long it takes
    const auto batches = static_cast<Picoseconds>((passes - pass) * points_.size());
    const Picoseconds share =
        (is_virtual_ ? left : left / batches) / std::max<Picoseconds>(each, 1);
    return static_cast<std::uint32_t>(std::clamp<Picoseconds>(share, least, most));
  }

  /// How many repetitions, one after the other, make one time of a batch.
  std::uint32_t block_of(const Point& point, std::uint32_t count) const {
    if (is_virtual_ || point.probe == Probe::shared_port) return 1;
    return std::clamp(count / blocks_least, 1u, block_most);
  }

  /// The least mean of the blocks of `count` repetitions; `none` if nothing could be measured.
  Picoseconds batch(const Point& point, std::uint32_t count) {
    const std::uint32_t block = block_of(point, count);
    const std::uint32_t blocks = count / block;
    assert(blocks <= times_max);
    Times mine;
    mine.fill(none);
    if (point.probe == Probe::shared_port) {
      for (std::uint32_t i = 0; i < blocks; ++i) mine[i] = share_port(point);
    } else {
      const InVirtualTime virtual_time;
      for (std::uint32_t i = 0; i < blocks; ++i) mine[i] = mean_of(point, block);
    }
    for (std::uint32_t cable = 0; cable < wiring_.cables.size() && !is_virtual_; ++cable)
      if (station_.has(cable) && wiring_.cables[cable].queue == 0) station_.settle(cable);
    Times slowest;
    slowest.fill(none);
    for (const Times& one : gather(exchange_, mine))
      for (std::uint32_t i = 0; i < blocks; ++i) slowest[i] = std::max(slowest[i], one[i]);
    return *std::min_element(slowest.begin(), slowest.begin() + blocks);
  }

  /// Round trips are timed as a whole, so that a clock, which takes as long as a message inside a
  /// node, is read once for all of them.
  Picoseconds mean_of(const Point& point, std::uint32_t repetitions) {
    const auto count = static_cast<Picoseconds>(repetitions);
    const bool is_round_trip =
        point.probe == Probe::one_way || point.probe == Probe::inside_one_way;
    if (is_round_trip) {
      const Picoseconds begin = instant();
      bool is_timed = false;
      for (std::uint32_t i = 0; i < repetitions; ++i) is_timed = goes_there_and_back(point);
      return is_timed ? since(begin) / (2 * count) : none;
    }
    Picoseconds sum = 0;
    bool is_timed = true;
    for (std::uint32_t i = 0; i < repetitions; ++i) {
      const Picoseconds time = run_once(point);
      is_timed = is_timed && time >= 0;
      sum += time;
    }
    return is_timed ? sum / count : none;
  }

  Picoseconds run_once(const Point& point) {
    switch (point.probe) {
      case Probe::stream:
        return stream(point);
      case Probe::posting:
      case Probe::waiting:
        return post_and_wait(point);
      case Probe::combine:
        return self_ == Rank{0} ? combine(point) : none;
      case Probe::incast:
        return incast(point);
      case Probe::inside_store:
      case Probe::inside_take:
      case Probe::inside_read:
        return self_ == roles_.inside || self_ == roles_.beside ? inside(point) : none;
      case Probe::one_way:
      case Probe::inside_one_way:
      case Probe::shared_port:
        break;
    }
    return none;
  }

  std::uint32_t ranks_of(Probe probe) const {
    return probe == Probe::shared_port ? static_cast<std::uint32_t>(roles_.senders.size()) : 1;
  }

  Picoseconds since(Picoseconds begin) const {
    return std::max<Picoseconds>(instant() - begin - clock_cost_, 0);
  }

  /// A message and its answer.  Whether this rank is the one that times them.
  bool goes_there_and_back(const Point& point) {
    if (point.probe == Probe::inside_one_way) {
      const std::uint64_t bytes = point.bytes;
      if (self_ == roles_.inside) mailboxes_.put(bytes, 0);
      if (self_ == roles_.inside || self_ == roles_.beside) mailboxes_.take(bytes, 0);
      if (self_ == roles_.beside) mailboxes_.put(bytes, 0);
      return self_ == roles_.inside;
    }
    const Put message{.bytes = point.bytes};
    if (self_ == Rank{0}) station_.put(wiring_.control, message);
    if (self_ == Rank{0} || self_ == roles_.partner) station_.take(wiring_.control);
    if (self_ == roles_.partner) station_.put(wiring_.control, message);
    return self_ == Rank{0};
  }

  /// Sends all but the last message by `cables` and the last by `control`, until the answer.
  Picoseconds send_stream(const Point& point, std::span<const std::uint32_t> cables,
                          std::uint32_t control, std::uint32_t messages) {
    const Picoseconds begin = instant();
    for (std::uint32_t i = 0; i + 1 < messages; ++i)
      station_.put(cables[i], {.bytes = point.bytes});
    station_.put(control, {.bytes = point.bytes});
    station_.take(control);
    const Picoseconds time = since(begin);
    station_.poll(1);  // completions that lie there would make virtual time go on in small steps
    return time;
  }
  void answer_stream(std::uint32_t control, std::uint32_t messages) {
    station_.take(control);
    station_.put(control, {});
    station_.take_of_queue_1(messages - 1);
  }

  Picoseconds stream(const Point& point) {
    // Afterwards the other says that it has taken all of them, and nothing is under way any more.
    Picoseconds time = none;
    if (self_ == Rank{0}) {
      time = send_stream(point, wiring_.streams, wiring_.control, point.messages);
      station_.take(wiring_.control);
    } else if (self_ == roles_.partner) {
      answer_stream(wiring_.control, point.messages);
      station_.put(wiring_.control, {});
    }
    return time;
  }

  /// Messages are posted in a row, and taken when all have come.  Returns the time of the posts on
  /// their sender, or of the takes on their receiver.
  Picoseconds post_and_wait(const Point& point) {
    if (self_ == Rank{0}) {
      const Picoseconds begin = instant();
      for (std::uint32_t i = 0; i < point.messages; ++i)
        station_.put(wiring_.streams[i], {.bytes = point.bytes, .signaled = true});
      const Picoseconds time = since(begin);
      for (std::uint32_t i = 0; i < point.messages; ++i) station_.flush(wiring_.streams[i]);
      station_.put(wiring_.control, {});
      station_.take(wiring_.control);
      if (point.probe == Probe::posting) return time;
    } else if (self_ == roles_.partner) {
      station_.take(wiring_.control);
      const Picoseconds begin = instant();
      station_.take_of_queue_1(point.messages);
      const Picoseconds time = since(begin);
      station_.put(wiring_.control, {});
      if (point.probe == Probe::waiting) return time;
    }
    return none;
  }

  /// Small ones are combined several times, because a clock is no finer.
  Picoseconds combine(const Point& point) {
    const std::uint64_t times = is_virtual_ ? 1 : std::max<std::uint64_t>(8192 / point.bytes, 1);
    detail::Clock& clock = station_.port().driver().clock();
    const Picoseconds begin = instant();
    for (std::uint64_t i = 0; i < times; ++i) {
      sum_.combine(incoming_.data(), partial_.data(), point.bytes / sizeof(double), sum_.context);
      if (is_virtual_) clock.charge_work(point.bytes);
    }
    return since(begin) / static_cast<Picoseconds>(times);
  }

  Picoseconds incast(const Point& point) {
    if (self_ == Rank{0}) {
      const Picoseconds begin = instant();
      for (std::uint32_t i = 0; i < point.messages; ++i) station_.put(wiring_.answers[i], {});
      for (std::uint32_t i = 0; i < point.messages; ++i) station_.take(wiring_.answers[i]);
      return since(begin);
    }
    const auto place = std::find(roles_.answerers.begin(), roles_.answerers.end(), self_);
    const auto index = static_cast<std::uint32_t>(place - roles_.answerers.begin());
    if (place == roles_.answerers.end() || index >= point.messages) return none;
    station_.take(wiring_.answers[index]);
    station_.put(wiring_.answers[index], {.bytes = point.bytes});
    return none;
  }

  /// All senders begin at one instant: that of their node's clock which rank 0 has named, or the
  /// beginning of virtual time.  Collective.
  Picoseconds share_port(const Point& point) {
    constexpr Picoseconds soon = 300'000'000;  // 0.3 ms: by then all have been told
    const Picoseconds start = gather(exchange_, instant() + soon).front();
    const InVirtualTime virtual_time;
    const auto each = point.messages / static_cast<std::uint32_t>(roles_.senders.size());
    for (std::size_t i = 0; i < roles_.senders.size(); ++i) {
      const std::span<const std::uint32_t> cables = wiring_.ports[i];
      if (self_ == roles_.targets[i]) answer_stream(cables[0], each);
      if (self_ != roles_.senders[i]) continue;
      if (!is_virtual_) spin_until("start", [start] { return instant() >= start; });
      return send_stream(point, cables.subspan(1), cables[0], each);
    }
    return none;
  }

  Picoseconds inside(const Point& point) {
    constexpr std::uint32_t ready = Mailboxes::slots_of_each - 1;  // the slot of what is not timed
    const bool is_first = self_ == roles_.inside;
    const std::uint64_t bytes = point.bytes;
    Picoseconds time = none;
    switch (point.probe) {
      case Probe::inside_store:
      case Probe::inside_take: {
        if (is_first) {
          const Picoseconds begin = instant();
          for (std::uint32_t i = 0; i < point.messages; ++i) mailboxes_.put(bytes, i);
          time = since(begin);
          mailboxes_.put(bytes, ready);
          mailboxes_.take(bytes, ready);
          return point.probe == Probe::inside_store ? time : none;
        }
        mailboxes_.take(bytes, ready);  // after all others, so that these are visible
        const Picoseconds begin = instant();
        for (std::uint32_t i = 0; i < point.messages; ++i) mailboxes_.take(bytes, i);
        time = since(begin);
        mailboxes_.put(bytes, ready);
        return point.probe == Probe::inside_take ? time : none;
      }
      case Probe::inside_read: {
        if (!is_first) return none;
        const Picoseconds begin = instant();
        const bool could = mailboxes_.read(bytes);
        return could ? since(begin) : none;
      }
      case Probe::one_way:
      case Probe::stream:
      case Probe::posting:
      case Probe::waiting:
      case Probe::combine:
      case Probe::shared_port:
      case Probe::incast:
      case Probe::inside_one_way:
        break;
    }
    return none;
  }

  /// The median time of reading the clock, which is subtracted from means.
  static Picoseconds cost_of_clock() {
    std::array<Picoseconds, 101> costs;
    for (Picoseconds& cost : costs) {
      const Picoseconds begin = instant();
      cost = instant() - begin;
    }
    std::sort(costs.begin(), costs.end());
    return costs[costs.size() / 2];
  }

  Exchange& exchange_;
  Rank self_;
  Roles roles_;
  Wiring wiring_;
  std::vector<Point> points_;
  Station station_;
  Mailboxes mailboxes_;
  Reduction sum_;
  std::vector<double> incoming_, partial_;
  bool is_virtual_;
  Picoseconds clock_cost_;
};

}  // namespace

std::vector<Sample> probe_network(Exchange& exchange, std::span<const Node> nodes,
                                  const NetworkProbeOptions& options) {
  constexpr Timeout budget_min = std::chrono::milliseconds(50);
  if (options.budget < budget_min)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("budget of the probes: {} ns: expected at least 50 ms",
                            options.budget.count()));
  if (nodes.size() != exchange.rank_count())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("probe_network: the nodes of {} ranks: expected those of {}",
                            nodes.size(), exchange.rank_count()));
  const Timeout end = detail::MonotonicClock::read() + options.budget;
  Prober prober(exchange, nodes, options);
  return prober.run(end, options.on_untried);
}

}  // namespace tutti::bench
