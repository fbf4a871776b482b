// See harness.hpp.  Also main(): `--device NAME` chooses the device, in either driver; a test
// program whose device is absent ends with 77, which CTest reports as skipped.
#include "harness.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

namespace tutti::conformance {
namespace {

std::string device_name = "soft0";
const verbs::Driver* chosen_driver = nullptr;

ibv_device* find_device(const verbs::Driver& candidate, ibv_device** list,
                        const std::string& name = device_name) {
  for (ibv_device** device = list; device && *device; ++device)
    if (name == candidate.get_device_name(*device)) return *device;
  return nullptr;
}

bool choose_driver() {
  for (const verbs::Driver* const candidate :
       {&verbs::soft_driver(), &verbs::libibverbs_driver()}) {
    ibv_device** const list = candidate->get_device_list(nullptr);
    const bool found = find_device(*candidate, list) != nullptr;
    if (list) candidate->free_device_list(list);
    if (!found) continue;
    chosen_driver = candidate;
    return true;
  }
  return false;
}

#if defined(__SANITIZE_ADDRESS__)
bool another_thread_runs() {
  int running = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "stat");
    std::string line;
    // "1234 (name) S ...": the name may hold anything.
    if (!std::getline(file, line)) continue;
    running += line[line.rfind(')') + 2] != 'S';
  }
  return running > 1;
}
#endif

/// The address sanitizer of GCC 12 does not hold its allocator's locks across a fork: a thread of
/// the device that allocates just then (as each does when it begins) leaves the child's for ever
/// taken.  It is asleep before long.
pid_t fork_when_quiet() {
#if defined(__SANITIZE_ADDRESS__)
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (another_thread_runs() && std::chrono::steady_clock::now() < limit) ::usleep(100);
#endif
  return ::fork();
}

/// The children of a process that has unshared come to the new namespace, until it says that they
/// should come to its own again.
pid_t fork_to(Identity identity) {
  if (identity == Identity::beside) return fork_when_quiet();
  const detail::Descriptor own(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
  if (!own || ::unshare(CLONE_NEWPID) != 0) return -1;
  const pid_t child = fork_when_quiet();
  if (child != 0) {
    EXPECT_EQ(::setns(own.get(), CLONE_NEWPID), 0);
  }
  return child;
}

std::byte pattern(unsigned seed, std::size_t index) {
  return static_cast<std::byte>((seed * 131 + index * 7 + (index >> 8)) & 0xff);
}

}  // namespace

const verbs::Driver& driver() {
  return *chosen_driver;
}
bool device_is_soft() {
  return chosen_driver == &verbs::soft_driver();
}
void let_others_work() {
  constexpr unsigned polls_between_yields = 256;
  static thread_local unsigned polls = 0;
  if (!device_is_soft() || ++polls % polls_between_yields == 0) ::sched_yield();
}

Buffer::Buffer(std::size_t bytes, Storage storage) {
  if (storage == Storage::shared_file) {
    descriptor_ =
        detail::Descriptor(::memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  }
  const int flags = storage == Storage::shared_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  mapping_ = detail::Mapping(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor_.get(), 0), bytes);
  EXPECT_TRUE(mapping_);
}

void Buffer::fill(unsigned seed) const {
  for (std::size_t index = 0; index < size(); ++index) data()[index] = pattern(seed, index);
}

bool Buffer::holds(unsigned seed, std::size_t bytes, std::size_t offset) const {
  for (std::size_t index = 0; index < bytes; ++index)
    if (data()[offset + index] != pattern(seed, index)) return false;
  return true;
}

Device::Device() : Device(device_name) {}

Device::Device(const std::string& name) {
  ibv_device** const list = driver().get_device_list(nullptr);
  context = driver().open_device(find_device(driver(), list, name));
  driver().free_device_list(list);
  EXPECT_NE(context, nullptr) << std::strerror(errno);
  if (context) domain = driver().alloc_pd(context);
}

Device::~Device() {
  if (!context) return;
  EXPECT_EQ(driver().dealloc_pd(domain), 0);
  EXPECT_EQ(driver().close_device(context), 0);
}

Region::Region(const Device& device, const Buffer& buffer, int access)
    : Region(device.domain, buffer.data(), buffer.size(), access) {}

Region::Region(ibv_pd* domain, void* address, std::size_t bytes, int access)
    : handle(driver().reg_mr(domain, address, bytes, access)) {
  EXPECT_NE(handle, nullptr) << std::strerror(errno);
}

Region::~Region() {
  deregister();
}

void Region::deregister() {
  if (handle) {
    EXPECT_EQ(driver().dereg_mr(handle), 0);
  }
  handle = nullptr;
}

ibv_sge Region::piece(std::size_t offset, std::size_t bytes) const {
  return {.addr = address() + offset,
          .length = static_cast<std::uint32_t>(bytes),
          .lkey = handle->lkey};
}

void set_path(ibv_ah_attr& path, const Address& peer, std::uint8_t port) {
  path.port_num = port;
  path.dlid = peer.lid;
  if (peer.lid != 0) return;
  path.is_global = 1;
  path.grh.dgid = peer.gid;
  path.grh.hop_limit = 1;
}

Endpoint::Endpoint(const Device& owner, const EndpointOptions& options)
    : device(owner), queue(options.queue), port(options.port) {
  owns_queue_ = queue == nullptr;
  if (owns_queue_)
    queue = driver().create_cq(owner.context, options.completions, nullptr, nullptr, 0);
  EXPECT_NE(queue, nullptr);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = queue;
  attributes.recv_cq = queue;
  attributes.srq = options.shared_receives;
  attributes.cap.max_send_wr = options.sends;
  attributes.cap.max_recv_wr = options.receives;
  attributes.cap.max_send_sge = options.pieces;
  attributes.cap.max_recv_sge = options.pieces;
  attributes.cap.max_inline_data = options.inline_bytes;
  attributes.qp_type = options.type;
  attributes.sq_sig_all = options.signal_all;
  pair = driver().create_qp(options.domain ? options.domain : owner.domain, &attributes);
  EXPECT_NE(pair, nullptr) << std::strerror(errno);
}

Endpoint::~Endpoint() {
  destroy_queue_pair();
  if (owns_queue_) {
    EXPECT_EQ(driver().destroy_cq(queue), 0);
  }
}

void Endpoint::destroy_queue_pair() {
  if (pair) {
    EXPECT_EQ(driver().destroy_qp(pair), 0);
  }
  pair = nullptr;
}

Address Endpoint::address() const {
  ibv_port_attr attributes{};
  ibv_gid_entry entry{};
  EXPECT_EQ(driver().query_port(device.context, port, &attributes), 0);
  EXPECT_EQ(driver().query_gid(device.context, port, 0, &entry), 0);
  return {pair->qp_num, attributes.lid, entry.gid};
}

int Endpoint::move_to(ibv_qp_state state) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  return driver().modify_qp(pair, &attributes, IBV_QP_STATE);
}

int Endpoint::initialise(unsigned access) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port;
  attributes.qp_access_flags = access;
  return driver().modify_qp(pair, &attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int Endpoint::make_ready_to_receive(const Address& peer, const ConnectionOptions& options) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer.queue_pair;
  attributes.max_dest_rd_atomic = options.reads_answered;
  attributes.min_rnr_timer = options.rnr_timer;
  set_path(attributes.ah_attr, peer, port);
  return driver().modify_qp(pair, &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int Endpoint::make_ready_to_send(const ConnectionOptions& options) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = options.timeout;
  attributes.retry_cnt = options.retries;
  attributes.rnr_retry = options.rnr_retries;
  attributes.max_rd_atomic = options.reads;
  return driver().modify_qp(pair, &attributes,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void Endpoint::connect(const Address& peer, const ConnectionOptions& options) const {
  EXPECT_EQ(initialise(options.access), 0);
  EXPECT_EQ(make_ready_to_receive(peer, options), 0);
  EXPECT_EQ(make_ready_to_send(options), 0);
}

ibv_qp_state Endpoint::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  EXPECT_EQ(driver().query_qp(pair, &attributes, IBV_QP_STATE, &initial), 0);
  return attributes.qp_state;
}

bool Endpoint::comes_to(ibv_qp_state wanted) const {
  const auto deadline = std::chrono::steady_clock::now() + (device_is_soft() ? 0s : 5s);
  while (state() != wanted)
    if (std::chrono::steady_clock::now() >= deadline) return false;
  return true;
}

int Endpoint::send(ibv_wr_opcode opcode, const std::vector<ibv_sge>& pieces, std::uint64_t remote,
                   std::uint32_t key, unsigned flags, std::uint64_t id,
                   std::uint32_t immediate) const {
  std::vector<ibv_sge> list = pieces;
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = list.data();
  request.num_sge = static_cast<int>(list.size());
  request.opcode = opcode;
  request.send_flags = flags;
  request.imm_data = immediate;
  request.wr.rdma.remote_addr = remote;
  request.wr.rdma.rkey = key;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(pair, &request, &bad);
}

int Endpoint::receive(const std::vector<ibv_sge>& pieces, std::uint64_t id) const {
  std::vector<ibv_sge> list = pieces;
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = list.data();
  request.num_sge = static_cast<int>(list.size());
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(pair, &request, &bad);
}

ibv_wc Endpoint::wait(std::chrono::milliseconds patience) const {
  ibv_wc completion{};
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const int count = ibv_poll_cq(queue, 1, &completion);
    if (count == 1) return completion;
    if (count < 0 || std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << (count < 0 ? "poll_cq failed" : "no completion");
      completion.status = IBV_WC_GENERAL_ERR;
      return completion;
    }
    let_others_work();
  }
}

bool Endpoint::is_quiet(std::chrono::milliseconds time) const {
  ibv_wc completion{};
  const auto deadline = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < deadline) {
    if (ibv_poll_cq(queue, 1, &completion) != 0) return false;
    let_others_work();
  }
  return true;
}

void Endpoint::forget_completions() const {
  ibv_wc completion{};
  while (ibv_poll_cq(queue, 1, &completion) == 1) {
  }
}

SharedReceives::SharedReceives(const Device& device, std::uint32_t receives) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = receives;
  attributes.attr.max_sge = 4;
  handle = driver().create_srq(device.domain, &attributes);
  EXPECT_NE(handle, nullptr) << std::strerror(errno);
}

SharedReceives::~SharedReceives() {
  EXPECT_EQ(driver().destroy_srq(handle), 0);
}

int SharedReceives::receive(const std::vector<ibv_sge>& pieces, std::uint64_t id) const {
  std::vector<ibv_sge> list = pieces;
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = list.data();
  request.num_sge = static_cast<int>(list.size());
  ibv_recv_wr* bad = nullptr;
  return ibv_post_srq_recv(handle, &request, &bad);
}

Loopback::Loopback(const EndpointOptions& options, const ConnectionOptions& connection)
    : left(device, options), right(device, options) {
  left.connect(right.address(), connection);
  right.connect(left.address(), connection);
}

void Line::put_bytes(const void* bytes, std::size_t count) const {
  EXPECT_EQ(::send(socket_.get(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
}

void Line::get_bytes(void* bytes, std::size_t count) const {
  if (::recv(socket_.get(), bytes, count, MSG_WAITALL) == static_cast<ssize_t>(count)) return;
  ADD_FAILURE() << "the other process has ended";
  std::memset(bytes, 0, count);
}

Identity wanted_identity() {
  const char* const text = std::getenv("TUTTI_TEST_PID_NAMESPACE");
  return text && std::strcmp(text, "1") == 0 ? Identity::below : Identity::beside;
}

bool may_have_namespaces() {
  const pid_t child = fork_to(Identity::below);
  if (child == 0) ::_exit(0);
  return child > 0 && ::waitpid(child, nullptr, 0) == child;
}

OtherProcess::OtherProcess(const std::function<void(Line&)>& body, Identity identity) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::cout.flush();
  std::fflush(nullptr);
  id_ = fork_to(identity);
  EXPECT_GE(id_, 0) << std::strerror(errno);
  if (id_ != 0) {
    ::close(ends[1]);
    line_ = std::make_unique<Line>(ends[0]);
    return;
  }
  ::close(ends[0]);
  Line line(ends[1]);
  body(line);
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(testing::Test::HasFailure() ? 1 : 0);
}

OtherProcess::~OtherProcess() {
  if (id_ > 0) kill();
}

void OtherProcess::signal(int number) const {
  EXPECT_EQ(::kill(id_, number), 0);
}

void OtherProcess::stop() const {
  signal(SIGSTOP);
  int status = 0;
  EXPECT_EQ(::waitpid(id_, &status, WUNTRACED), id_);
  EXPECT_TRUE(WIFSTOPPED(status));
}

void OtherProcess::resume() const {
  signal(SIGCONT);
}

void OtherProcess::kill() {
  signal(SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(id_, &status, 0), id_);
  id_ = -1;
}

void OtherProcess::expect_success() {
  int status = 0;
  EXPECT_EQ(::waitpid(id_, &status, 0), id_);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the other process failed";
  id_ = -1;
}

void connect_over(Line& line, const Endpoint& endpoint, const ConnectionOptions& options) {
  const Address peer = line.swap(endpoint.address());
  endpoint.connect(peer, options);
  line.meet();
}

std::size_t open_descriptors_count() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder))) - 1;
}

}  // namespace tutti::conformance

int main(int count, char** arguments) {
  using namespace tutti::conformance;
  testing::InitGoogleTest(&count, arguments);
  for (int index = 1; index + 1 < count; ++index)
    if (std::string(arguments[index]) == "--device") device_name = arguments[index + 1];
  if (!choose_driver()) {
    std::cerr << "no verbs device named " << device_name << "\n";
    return 77;
  }
  if (wanted_identity() == Identity::below && !may_have_namespaces()) {
    std::cerr << "no namespaces of process-ids for this user: " << std::strerror(errno) << "\n";
    return 77;
  }
  return RUN_ALL_TESTS();
}
