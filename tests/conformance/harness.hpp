// What the conformance tests share: the device under test, reached through the driver table only,
// so that the same programs judge the software device and a real one; owners of its objects; and
// two processes with a line between them.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/detail/descriptor.hpp"
#include "verbs/driver.hpp"

namespace tutti::conformance {

using namespace std::chrono_literals;

const verbs::Driver& driver();
bool device_is_soft();
/// For loops that poll: gives the core away after a poll in vain where the kernel's threads drive
/// the device.  Where it is ours, every few hundred polls, so that its helper threads and the other
/// processes of a test do not wait for time slices where CPUs are scarce.
void let_others_work();

/// Private pages, or a memfd that cannot shrink: what the data lie in decides the transport.
enum class Storage { private_pages, shared_file };

class Buffer {
 public:
  explicit Buffer(std::size_t bytes, Storage storage = Storage::private_pages);
  std::byte* data() const { return mapping_.data(); }
  std::size_t size() const { return mapping_.size(); }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data()); }
  void fill(unsigned seed) const;
  bool holds(unsigned seed, std::size_t bytes, std::size_t offset = 0) const;

 private:
  detail::Descriptor descriptor_;
  detail::Mapping mapping_;
};

class Device {
 public:
  Device();  // the one under test
  explicit Device(const std::string& name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
};

inline constexpr int all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

class Region {
 public:
  Region(const Device& device, const Buffer& buffer, int access = all_access);
  Region(ibv_pd* domain, void* address, std::size_t bytes, int access);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  void deregister();

  ibv_sge piece(std::size_t offset, std::size_t bytes) const;
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(handle->addr); }

  ibv_mr* handle = nullptr;
};

/// What a peer must know.
struct Address {
  std::uint32_t queue_pair;
  std::uint16_t lid;
  ibv_gid gid;
};

/// With a global route where the port has no other addresses: on Ethernet.
void set_path(ibv_ah_attr& path, const Address& peer, std::uint8_t port = 1);

/// All that ibv_query_qp(3) knows; libibverbs refuses rate limits and beyond with EOPNOTSUPP.
inline constexpr int all_attributes = (IBV_QP_DEST_QPN << 1) - 1;

struct EndpointOptions {
  std::uint32_t sends = 16;
  std::uint32_t receives = 16;
  std::uint32_t pieces = 4;
  std::uint32_t inline_bytes = 64;
  int completions = 64;
  bool signal_all = false;
  ibv_srq* shared_receives = nullptr;
  ibv_pd* domain = nullptr;  // NULL: the device's
  ibv_cq* queue = nullptr;   // NULL: one of its own, for sends and receives
  ibv_qp_type type = IBV_QPT_RC;
  std::uint8_t port = 1;
};

struct ConnectionOptions {
  unsigned access = all_access;
  std::uint8_t timeout = 14;  // 67 ms: the driver of an emulated machine takes its time
  std::uint8_t retries = 3;
  std::uint8_t rnr_retries = 7;
  std::uint8_t rnr_timer = 1;       // 10 us
  std::uint8_t reads = 1;           // and atomics, in flight
  std::uint8_t reads_answered = 1;  // at once
};

class Endpoint {
 public:
  explicit Endpoint(const Device& device, const EndpointOptions& options = {});
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  void destroy_queue_pair();

  Address address() const;
  int reset() const { return move_to(IBV_QPS_RESET); }
  int fail() const { return move_to(IBV_QPS_ERR); }
  int initialise(unsigned access = all_access) const;
  int make_ready_to_receive(const Address& peer, const ConnectionOptions& options = {}) const;
  int make_ready_to_send(const ConnectionOptions& options = {}) const;
  /// All three.
  void connect(const Address& peer, const ConnectionOptions& options = {}) const;
  ibv_qp_state state() const;
  /// The software device changes the state before a completion says why; other devices do so soon.
  bool comes_to(ibv_qp_state wanted) const;

  int send(ibv_wr_opcode opcode, const std::vector<ibv_sge>& pieces, std::uint64_t remote = 0,
           std::uint32_t key = 0, unsigned flags = IBV_SEND_SIGNALED, std::uint64_t id = 1,
           std::uint32_t immediate = 0) const;
  int receive(const std::vector<ibv_sge>& pieces, std::uint64_t id = 1) const;

  /// The next completion; fails the test when none comes.
  ibv_wc wait(std::chrono::milliseconds patience = 10s) const;
  /// True when no completion comes within the time.
  bool is_quiet(std::chrono::milliseconds time = 5ms) const;
  /// What a reset leaves in the queue: verbs do not say whether it takes completions away.
  void forget_completions() const;

  const Device& device;
  ibv_cq* queue = nullptr;
  ibv_qp* pair = nullptr;
  const std::uint8_t port;

 private:
  int move_to(ibv_qp_state state) const;
  bool owns_queue_ = false;
};

class SharedReceives {
 public:
  explicit SharedReceives(const Device& device, std::uint32_t receives = 16);
  ~SharedReceives();
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;
  int receive(const std::vector<ibv_sge>& pieces, std::uint64_t id) const;

  ibv_srq* handle = nullptr;
};

/// Two queue pairs of one process, connected to each other.
struct Loopback {
  explicit Loopback(const EndpointOptions& options = {}, const ConnectionOptions& connection = {});
  Device device;
  Endpoint left;
  Endpoint right;
};

/// The other process of a test, and a line to it.
class Line {
 public:
  explicit Line(int socket) : socket_(socket) {}
  template <class T>
  void put(const T& value) const {
    put_bytes(&value, sizeof(value));
  }
  template <class T>
  T get() const {
    T value;
    get_bytes(&value, sizeof(value));
    return value;
  }
  /// Sends the value and takes the other's.
  template <class T>
  T swap(const T& value) const {
    put(value);
    return get<T>();
  }
  void meet() const { (void)swap('m'); }

 private:
  void put_bytes(const void* bytes, std::size_t count) const;
  void get_bytes(void* bytes, std::size_t count) const;
  detail::Descriptor socket_;
};

/// Where a forked process has its process-id: beside the test's, or in a namespace below it, where
/// it is number 1 and the test has no number.
enum class Identity { beside, below };
/// As TUTTI_TEST_PID_NAMESPACE says: 1 means below.
Identity wanted_identity();
/// Whether the system lets this process have namespaces.
bool may_have_namespaces();

/// A forked process that runs `body` and ends; failures in it are failures of the test.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void(Line&)>& body,
                        Identity identity = wanted_identity());
  ~OtherProcess();
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  Line& line() { return *line_; }
  pid_t id() const { return id_; }
  void stop() const;  // and wait until it is
  void resume() const;
  void kill();            // and reap
  void expect_success();  // wait for its end

 private:
  void signal(int number) const;

  pid_t id_ = -1;
  std::unique_ptr<Line> line_;
};

void connect_over(Line& line, const Endpoint& endpoint, const ConnectionOptions& options = {});

struct RemoteRegion {
  std::uint64_t address;
  std::uint32_t key;
};
inline RemoteRegion remote_of(const Region& region) {
  return {region.address(), region.handle->rkey};
}

std::size_t open_descriptors_count();

}  // namespace tutti::conformance
