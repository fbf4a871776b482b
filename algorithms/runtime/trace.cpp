#include "runtime/trace.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <map>
#include <mutex>
#include <tutti/status.hpp>
#include <utility>

#include "tune/json_text.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti::runtime {
namespace {

/// More operations than these share the last number.
constexpr std::size_t operations_max = UINT16_MAX;

/// More failures than these are not kept; hardly a context has as many communicators.
constexpr std::size_t incidents_max = 64;

/// Whether the processor's counter goes on at one rate on all cores, asleep or not.
bool has_steady_counter() noexcept {
#if defined(__x86_64__)
  constexpr unsigned power_management = 0x80000007u, invariant = 1u << 8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(power_management, &a, &b, &c, &d) != 0 && (d & invariant) != 0;
#else
  return false;
#endif
}

[[noreturn]] void refuse(const std::string& pattern, const std::string& path,
                         const std::string& reason, int error) {
  throw Error(ErrorCode::invalid_argument,
              "TUTTI_TRACE=\"" + pattern + "\": " + path + ": " + reason +
                  "; expected the path of a file that can be written, in a folder that exists",
              error);
}

/// The contexts of a process that have one rank do not write into one file.
std::string path_of_next(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, unsigned> contexts;
  const std::lock_guard lock(mutex);
  const unsigned count = ++contexts[path];
  return count == 1 ? path : path + "." + std::to_string(count);
}

/// Opens it without waiting for a reader, which a pipe would need.
detail::Descriptor open_trace(const std::string& pattern, const std::string& path) {
  detail::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC,
                                 S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    refuse(pattern, path, std::strerror(errno), errno);
  if (!S_ISREG(status.st_mode)) refuse(pattern, path, "is no regular file", EINVAL);
  return file;
}

/// Opens the first file of the rank that no other context writes to, and locks it until it is
/// closed.  Other processes may have the rank too, in communicators of their own.  Where the file
/// system has no locks, only contexts of this process are told apart.
detail::Descriptor open_next(const std::string& pattern, Rank rank, std::string& path) {
  const std::string first = trace_path(pattern, rank);
  for (;;) {
    path = path_of_next(first);
    detail::Descriptor file = open_trace(pattern, path);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return file;
  }
}

/// Nothing is traced that a trace has no room for; the ring has a power of two of stamps.
std::size_t stamps_in(std::size_t bytes, std::size_t stamp_bytes) noexcept {
  return std::bit_floor(std::max(bytes, trace_bytes_min) / stamp_bytes);
}

Timeout real_time() noexcept {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

/// Writes text by whole blocks, and remembers the first error.  Allocates nothing.
class Trace::Writer {
 public:
  Writer(int file, Moment begin, Moment end) noexcept : file_(file), begin_(begin) {
    const double ticks = static_cast<double>(end.ticks - begin.ticks);
    const double ns = static_cast<double>((end.time - begin.time).count());
    ns_per_tick_ = ticks > 0 && ns > 0 ? ns / ticks : 1;
  }

  void add(std::string_view text) noexcept {
    while (!text.empty()) {
      if (used_ == block_.size()) flush();
      const std::size_t count = std::min(text.size(), block_.size() - used_);
      std::memcpy(block_.data() + used_, text.data(), count);
      used_ += count;
      text.remove_prefix(count);
    }
  }
  void add(std::uint64_t number) noexcept {
    char text[24];
    const char* const end = std::to_chars(text, text + sizeof text, number).ptr;
    add(std::string_view(text, static_cast<std::size_t>(end - text)));
  }
  /// Begins an event: `"ph": "X", "ts": MICROSECONDS` and who.
  void begin_event(std::string_view phase, std::uint64_t ticks, Rank rank,
                   std::size_t track) noexcept {
    add(is_first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"");
    is_first_ = false;
    add(phase);
    add("\",\"ts\":");
    add_microseconds(ticks);
    add(",\"pid\":");
    add(index_of(rank));
    add(",\"tid\":");
    add(track);
  }
  void flush() noexcept {
    for (std::size_t done = 0; done < used_ && error_ == 0;) {
      const ssize_t count = ::write(file_, block_.data() + done, used_ - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        error_ = count < 0 ? errno : ENOSPC;
      else
        done += static_cast<std::size_t>(count);
      written_ += std::max<ssize_t>(count, 0);
    }
    used_ = 0;
  }
  int error() const noexcept { return error_; }
  off_t written() const noexcept { return written_; }

 private:
  void add_microseconds(std::uint64_t ticks) noexcept {
    // The counters of two cores may differ by less than a call takes.
    const auto passed = static_cast<double>(static_cast<std::int64_t>(ticks - begin_.ticks));
    const std::int64_t ns = begin_.time.count() + static_cast<std::int64_t>(passed * ns_per_tick_);
    const auto from_boot = static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0));
    add(from_boot / 1000);
    const std::uint64_t rest = from_boot % 1000;
    const char digits[] = {'.', static_cast<char>('0' + rest / 100),
                           static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
    add(std::string_view(digits, sizeof digits));
  }

  int file_;
  Moment begin_;
  double ns_per_tick_ = 1;
  std::array<char, 16384> block_;
  std::size_t used_ = 0;
  off_t written_ = 0;
  int error_ = 0;
  bool is_first_ = true;
};

std::string trace_path(std::string_view pattern, Rank rank) {
  const std::string number = std::to_string(index_of(rank));
  std::string path;
  bool is_in = false;
  for (std::size_t at; (at = pattern.find("%r")) != std::string_view::npos; is_in = true) {
    path += std::string(pattern.substr(0, at)) + number;
    pattern.remove_prefix(at + 2);
  }
  path += pattern;
  return is_in ? path : path + "." + number;
}

Trace::Trace(const std::string& pattern, Rank rank, std::size_t bytes, detail::Clock& clock)
    : rank_(rank),
      clock_(clock),
      counts_ticks_(!clock.is_simulated() && has_steady_counter()),
      file_(open_next(pattern, rank, path_)),
      stamps_(stamps_in(bytes, sizeof(Stamp))),
      mask_(stamps_.size() - 1),
      begin_(moment()) {
  write();
}

Trace::~Trace() {
  write();
  (void)::flock(file_.get(), LOCK_UN);  // which a forked child would hold on to
}

std::uint64_t Trace::measure_stamp() noexcept {
  // The thread may be interrupted: the fastest of several series counts.
  constexpr unsigned tries = 8, stamps = 64;
  static_assert(stamps * sizeof(Stamp) <= trace_bytes_min);
  assert(made_ == 0);
  std::uint64_t least = UINT64_MAX;
  for (unsigned i = 0; i < tries; ++i) {
    const std::uint64_t before = now();
    for (unsigned j = 0; j < stamps; ++j) stamp(now(), Kind::wait_ends, 0);
    least = std::min(least, now() - before);
  }
  made_ = 0;
  return least / stamps;
}

std::uint16_t Trace::add(TracedOperation operation) {
  if (operations_.size() == operations_max) {
    operations_.back().operation = {.collective = "operations beyond the first 65534",
                                    .algorithm = ""};
    return operations_max - 1;
  }
  operations_.push_back({std::move(operation)});
  return static_cast<std::uint16_t>(operations_.size() - 1);
}

void Trace::set_label(std::uint16_t operation, std::string_view label) noexcept {
  try {
    operations_[operation].operation.label = label;
  } catch (const std::bad_alloc&) {  // it goes without
  }
}

std::uint64_t Trace::clock_ns() noexcept {
  return static_cast<std::uint64_t>(clock_.now().count());
}

Trace::Moment Trace::moment() noexcept {
  if (!counts_ticks_) {
    const Timeout time = clock_.now();
    return {static_cast<std::uint64_t>(time.count()), time};
  }
  // The thread may be interrupted between two readings: the nearest of some are taken.
  constexpr int tries = 5;
  Moment best;
  std::uint64_t least = UINT64_MAX;
  for (int i = 0; i < tries; ++i) {
    const std::uint64_t before = now();
    const Timeout time = detail::now();
    const std::uint64_t apart = now() - before;
    if (apart < least) best = {before + apart / 2, time};
    least = std::min(least, apart);
  }
  return best;
}

void Trace::fail(const char* reason) noexcept {
  try {
    if (incidents_.size() < incidents_max) incidents_.push_back({now(), reason});
  } catch (const std::bad_alloc&) {  // the calls that failed are there all the same
  }
  if (!std::exchange(has_failed_, true)) write();
}

void Trace::write_head(Writer& writer, std::uint64_t dropped) const {
  char host[256] = {};
  (void)::gethostname(host, sizeof host - 1);
  writer.add("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"rank\":");
  writer.add(index_of(rank_));
  writer.add(",\"process\":");
  writer.add(static_cast<std::uint64_t>(::getpid()));
  writer.add(",\"host\":");
  writer.add(tune::json_string(host));
  writer.add(",\"events_dropped\":");
  writer.add(dropped);
  // To lay traces of several hosts beside each other, whose monotonic clocks differ.
  writer.add(",\"realtime_minus_monotonic_ns\":\"");
  writer.add(std::to_string((real_time() - detail::now()).count()));
  writer.add("\"},\"traceEvents\":[");
}

void Trace::write_ends(Writer& writer, std::uint64_t ticks, std::uint16_t operation, Open& open,
                       const char* how) const {
  const auto end = [&](bool& is_open, const char* arguments) {
    if (!std::exchange(is_open, false)) return;
    writer.begin_event("E", ticks, rank_, operation);
    writer.add(arguments);
    writer.add("}");
  };
  end(open.wait, "");
  end(open.round, "");
  end(open.call, how);
}

void Trace::write_call(Writer& writer, const Stamp& stamp, Open& open) const {
  const TracedOperation& operation = operations_[stamp.operation].operation;
  write_ends(writer, stamp.ticks, stamp.operation, open, "");
  open.call = true;
  writer.begin_event("B", stamp.ticks, rank_, stamp.operation);
  writer.add(",\"cat\":\"call\",\"name\":\"");
  writer.add(operation.collective);
  writer.add(" #");
  writer.add(operation.ordinal);
  writer.add("\",\"args\":{\"call\":");
  writer.add(stamp.value);
  if (stamp.untimed > 0) {
    writer.add(",\"untimed_calls\":");
    writer.add(stamp.untimed);
  }
  if (stamp.kind == Kind::call_has_begun) writer.add(",\"begun_late\":true");
  writer.add("}}");
}

void Trace::write_stamp(Writer& writer, const Stamp& stamp, Open& open) const {
  const auto begin = [&](const char* category, std::string_view name, std::uint64_t number) {
    writer.begin_event("B", stamp.ticks, rank_, stamp.operation);
    writer.add(",\"cat\":\"");
    writer.add(category);
    writer.add("\",\"name\":\"");
    writer.add(name);
    writer.add(number);
    writer.add("\"");
  };
  const bool is_begin = stamp.kind == Kind::call_begins || stamp.kind == Kind::call_has_begun;
  if (!is_begin && !open.call) return;  // its begin was dropped
  switch (stamp.kind) {
    case Kind::call_begins:
      write_call(writer, stamp, open);
      if (operations_[stamp.operation].operation.round_count == 0) return;
      open.round = true;
      begin("round", "round ", 0);
      writer.add("}");
      return;
    case Kind::call_has_begun:
      write_call(writer, stamp, open);
      return;
    case Kind::round_begins: {
      Open inner{.round = open.round, .wait = open.wait};
      write_ends(writer, stamp.ticks, stamp.operation, inner, "");
      open.round = true;
      open.wait = false;
      begin("round", "round ", stamp.value);
      writer.add("}");
      return;
    }
    case Kind::wait_begins:
      open.wait = true;
      if (stamp.value == index_of(no_rank)) {
        writer.begin_event("B", stamp.ticks, rank_, stamp.operation);
        writer.add(",\"cat\":\"wait\",\"name\":\"wait\"}");
        return;
      }
      begin("wait", "wait for rank ", stamp.value);
      writer.add(",\"args\":{\"rank\":");
      writer.add(stamp.value);
      writer.add("}}");
      return;
    case Kind::wait_ends: {
      Open inner{.wait = open.wait};
      open.wait = false;
      write_ends(writer, stamp.ticks, stamp.operation, inner, "");
      return;
    }
    case Kind::call_ends:
      write_ends(writer, stamp.ticks, stamp.operation, open, "");
      return;
    case Kind::call_fails:
      write_ends(writer, stamp.ticks, stamp.operation, open, ",\"args\":{\"failed\":true}");
      return;
  }
}

void Trace::write_all(Writer& writer, const Moment& end) const {
  const std::uint64_t kept = std::min<std::uint64_t>(made_, stamps_.size());
  write_head(writer, made_ - kept);
  writer.begin_event("M", begin_.ticks, rank_, 0);
  writer.add(",\"name\":\"process_name\",\"args\":{\"name\":\"rank ");
  writer.add(index_of(rank_));
  writer.add("\"}}");
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const auto& [operation, calls] = operations_[i];
    const std::string name = operation.collective + " #" + std::to_string(operation.ordinal) +
                             (operation.label.empty() ? "" : " \"" + operation.label + "\"");
    writer.begin_event("M", begin_.ticks, rank_, i);
    writer.add(",\"name\":\"thread_name\",\"args\":{\"name\":");
    writer.add(tune::json_string(name));
    writer.add(",\"algorithm\":");
    writer.add(tune::json_string(operation.algorithm));
    writer.add(",\"communicator\":");
    writer.add(operation.communicator);
    writer.add(",\"ranks\":");
    writer.add(operation.rank_count);
    writer.add(",\"bytes\":");
    writer.add(operation.bytes);
    writer.add(",\"timed_calls\":");
    writer.add(calls.timed);
    writer.add(",\"untimed_calls\":");
    writer.add(calls.untimed);
    writer.add("}}");
  }
  std::vector<Open> open(operations_.size());
  for (std::uint64_t i = made_ - kept; i < made_; ++i) {
    const Stamp& stamp = stamps_[i & mask_];
    write_stamp(writer, stamp, open[stamp.operation]);
  }
  for (std::size_t i = 0; i < open.size(); ++i)
    write_ends(writer, end.ticks, static_cast<std::uint16_t>(i), open[i],
               ",\"args\":{\"unfinished\":true}");
  for (const Incident& incident : incidents_) {
    writer.begin_event("i", incident.ticks, rank_, 0);
    writer.add(",\"s\":\"p\",\"name\":");
    writer.add(tune::json_string(incident.reason));
    writer.add("}");
  }
  writer.add("\n]}\n");
  writer.flush();
}

void Trace::write() noexcept {
  const Moment end = moment();
  Writer writer(file_.get(), begin_, end);
  const char* why_not = nullptr;
  if (::lseek(file_.get(), 0, SEEK_SET) != 0) why_not = std::strerror(errno);
  try {
    if (why_not == nullptr) write_all(writer, end);
  } catch (const std::exception&) {  // std::bad_alloc
    why_not = "no memory to write it";
  }
  if (writer.error() != 0) why_not = std::strerror(writer.error());
  // What was written before is cut off last: it stays if this process is killed before, and if
  // nothing could be written over it.
  if (writer.written() > 0 && ::ftruncate(file_.get(), writer.written()) != 0 && why_not == nullptr)
    why_not = std::strerror(errno);
  if (why_not != nullptr)
    std::fprintf(stderr, "tutti: TUTTI_TRACE: %s: %s; the trace is incomplete\n", path_.c_str(),
                 why_not);
}

}  // namespace tutti::runtime
