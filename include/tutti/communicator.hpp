// Context: one process's device, arena, completion queue and queue pairs.  Communicator: ranks over
// a context and an exchange.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/exchange.hpp"
#include "tutti/export.hpp"
#include "tutti/segment.hpp"
#include "tutti/status.hpp"
#include "tutti/timeout.hpp"
#include "tutti/types.hpp"

namespace tutti {

/// How much the library verifies when an operation is made.
enum class CheckLevel : std::uint8_t {
  off,         // only what memory safety needs
  local,       // this rank's arguments
  collective,  // also that all ranks gave the same arguments; set-up communicates anyway
};

/// How the queue pairs of two processes are connected.
enum class ConnectBy : std::uint8_t {
  exchange,  // what each end needs to know of the other travels out of band
  cm,        // by IP address, through the kernel's connection manager (rdma_cm)
};

/// What a thread that waits does with its core.
enum class WaitPolicy : std::uint8_t {
  automatic,  // yields at once where more ranks than CPUs share these, else spins for 1 ms first;
              // blocks once nothing has come for 10 ms
  spin,       // keeps it
  yield,      // gives way after every few polls, to whoever is ready to run
  block,      // the same, and sleeps between looks (1 ms at most) once nothing has come for 50 us:
              // for ranks that share their CPUs with other programs, or shall leave them idle
};

/// How a rank is told of what the network has brought for any rank of its node
/// (Algorithm::shared_ring).
enum class SharedNotifications : std::uint8_t {
  automatic,    // words where the device places writes in order, and time is real
  words,        // the device writes words that all ranks of the node see; Error{unsupported} if not
  republished,  // a rank that has a connection writes them for its node, when it polls
};

/// What is left empty comes from the TUTTI_* environment (docs/settings.md), else the default.
struct ContextOptions {
  std::string device = {};                      // name or name:port; default: the best one
  std::optional<std::size_t> arena_bytes = {};  // for slots and send buffers; default 16 MiB
  std::optional<CheckLevel> check = {};         // default: collective
  /// Payloads above so many bytes go through in chunks, alike on all ranks; a plan that cuts the
  /// payload into parts takes a chunk of each part at a time.  Default, and 0: 64 KiB where
  /// ranks share nodes, 128 KiB where each is a node of its own, 1 MiB if zero-copy; less where a
  /// plan has so many slots that 8 MiB would not hold them.
  std::optional<std::size_t> chunk_bytes = {};
  /// Broadcasts of so many bytes to 2 MiB, reduces of two ranks by an operator that commutes to 512
  /// KiB, allreduces of two by such an operator of 64 times so many and more, and blocks
  /// (block_collectives.hpp) of twice so many and more, are read where their user has them if all
  /// ranks share a node and may (process_vm_readv); alike on all ranks; 0 and 1: always; SIZE_MAX:
  /// never.  Default: the first two ranks of a node measure, within 8 ms, when a communicator is
  /// made, and what is faster by that is done; Communicator::single_copy_remark().
  std::optional<std::size_t> single_copy_bytes = {};
  /// Whether operations that are zero-copy on registered memory (segment.hpp) may register buffers
  /// that lie in no segment; alike on all ranks.  Their memory must then stay mapped until the
  /// operation is destroyed, may be pinned, and start() takes no other target.  After a failure of
  /// the communicator, peers that write there lose their connection to this context.  Default:
  /// false.
  std::optional<bool> register_buffers = {};
  std::optional<Timeout> setup_timeout = {};  // of each collective set-up step; default 30 s
  std::optional<ConnectBy> connect = {};      // alike on all ranks; default: exchange
  std::optional<Notify> notify = {};          // alike on all ranks; default: immediate
  std::optional<WaitPolicy> wait = {};        // of this context; default: automatic
  std::optional<SharedNotifications> shared_notifications = {};  // alike on all ranks; automatic
  /// Messages per round of every operation; empty vector and default: a rule.
  std::optional<std::vector<std::uint32_t>> per_round = {};
  /// Imposes a node shape, alike on all ranks: ranks of each node, the last entry again for all
  /// further nodes; {1}: no shared memory.  Every node's ranks must be able to share memory.
  /// Default: the ranks of a host that have mapped each other's memory are a node.
  std::optional<std::vector<std::uint32_t>> ranks_per_node = {};
  std::optional<Placement> placement = {};  // of an imposed shape; default: block
  /// Ranks of a node of more than so many, all bound to CPUs of a domain each (those of one
  /// last-level cache and NUMA node), meet inside their domains first, in barriers and small
  /// allreduces; alike on all ranks; SIZE_MAX: never.  Default 16.
  std::optional<std::size_t> domains_above = {};
  /// Imposes domains on every node, however many ranks it has, alike on all ranks: ranks of each,
  /// in rank order, the last entry again for all further ones.  Default: what is found.
  std::optional<std::vector<std::uint32_t>> ranks_per_domain = {};
};

/// Device, arena, connections (keyed by peer, only the partners that plans use), completion queue.
/// One thread at a time for it and for everything made from it.  Must outlive its communicators
/// (checked, also when another is assigned to it).
///
/// A forked child has no part in its parent's context, nor in what was made from it: making
/// something throws Error{invalid_argument}, calls return `aborted` and tell nobody, and the memory
/// of segments is not there.  Destroying is allowed there and concerns the parent in no way, which
/// goes on.  A child may make a context of its own, over an exchange of its own.
class TUTTI_EXPORT Context {
 public:
  /// Opens the device and registers the arena.  Throws Error; Error{invalid_argument} also for an
  /// unknown TUTTI_* name in the environment or a value there that cannot be read.
  explicit Context(const ContextOptions& options = {});
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  ~Context();

  std::string device_name() const;    // e.g. "mlx5_0:1"
  std::string device_choice() const;  // one line: which port and GID, and why

  struct Implementation;
  Implementation& implementation() noexcept { return *implementation_; }

 private:
  std::unique_ptr<Implementation> implementation_;
};

/// The ranks of an exchange over a context.  Ranks of one host that can map each other's memory are
/// a node, and talk through it; over an emulated network every rank is a node of its own.  Context
/// and exchange are borrowed and must outlive it, and it its operations (checked).  Communicators
/// over one exchange share its incidents: a rank that dies or gives up ends them all.  Give each an
/// exchange of its own to keep them apart.
/// Collective functions are called by all ranks in the same order.  If ranks call different ones,
/// or one on different communicators of an exchange, every rank throws Error{mismatch} that names
/// the calls and the ranks, and the communicators stay usable.
class TUTTI_EXPORT Communicator {
 public:
  /// Collective.  Throws Error.
  Communicator(Context& context, Exchange& exchange);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  /// Collective.  The ranks that give the same color become a communicator of their own, ordered by
  /// key, then by rank here; without a color a rank takes part and gets none.  Operations of
  /// communicators are independent of each other, also where they share ranks.  The new ones borrow
  /// this one, which must outlive them (checked), and introduce their ranks through it: they need
  /// no exchange of their own, but share the incidents of this one's, also of ranks that they do
  /// not have.  Ranks share a node there if they do here.  Each takes an operation of this
  /// communicator with small buffers.  As MPI_Comm_split.  Throws Error; what is wrong in one
  /// part alone is not known to the others, but ranks that do not come in time end them all.
  std::optional<Communicator> split(std::optional<std::uint32_t> color, std::int64_t key = 0);

  /// Collective, with one scope on all ranks.  Memory for buffers that need not be copied, out of
  /// the arena (ContextOptions::arena_bytes).  Every rank may ask for as much as it needs; with
  /// Scope::node, the ranks of a node for the same.  Throws Error on all ranks: limit_exceeded
  /// where one has no room, mismatch.
  Segment allocate(std::size_t bytes, Scope scope = Scope::rank);

  Rank rank() const noexcept;
  std::uint32_t rank_count() const noexcept;
  Node node() const noexcept;  // of this rank; numbered by their lowest ranks
  std::uint32_t node_count() const noexcept;
  /// One line: why ranks that may be a node (same host and namespaces) are not.  Else empty.
  const std::string& node_remark() const noexcept;
  /// For people: which payloads are read where their users have them, and by which figures that was
  /// decided (ContextOptions::single_copy_bytes); alike on all ranks.
  std::string single_copy_remark() const;

  /// Gives up: every operation in flight here returns `aborted`, and within the detection bound
  /// (docs/guarantees.md) those of the other ranks do too; not over mpi_exchange(), which has no
  /// side channel: there the others time out.
  void abort() noexcept;

  /// Collective, out of band: no rank returns before all have entered.  Slow; for set-up and tests.
  /// Throws Error.
  void synchronize();

  /// One step of progress for all operations of the context, and now and then a look for dead
  /// peers.  ok, or the failure of this communicator.
  Status progress() noexcept;

  /// The first failure; its status is `ok` while there is none.
  const Failure& failure() const noexcept;

  struct Implementation;
  explicit Communicator(std::unique_ptr<Implementation>) noexcept;
  Implementation& implementation() noexcept { return *implementation_; }

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tutti
