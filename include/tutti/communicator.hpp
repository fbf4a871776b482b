// Context: one process's device, arena, completion queues and queue pairs.  Communicator: ranks
// over a context and an exchange.
#pragma once

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
  automatic,  // with a CPU for each rank: spins for 1 ms, then yields, and sleeps between polls
              // once nothing has arrived for a second; with more ranks than CPUs: yields at once,
              // and sleeps between polls after 10 ms
  spin,       // keeps it
  yield,      // yields after every few polls to any thread that is ready to run
  block,  // yields, and once nothing has arrived for 50 us sleeps until something does, woken by
          // the device or by the sender (polled memory: sleeps between polls, 1 ms at most): for
          // ranks that share their CPUs with other programs, or shall leave them idle
};

/// How the ranks of a node learn which chunks the network has brought for their node
/// (Algorithm::shared_ring).
enum class SharedNotifications : std::uint8_t {
  automatic,    // words where the device promises to place writes in order, and time is real
  words,        // the device writes words that all ranks of the node see; Error{unsupported} where
                // it neither promises to place writes in order nor was seen to do so, as a tuning
                // file says (docs/choosing_and_tuning.md)
  republished,  // the rank to which a connection leads writes the words when it polls
};

enum class ReportFormat : std::uint8_t { text, json };

/// By what the ranks choose their schedules (docs/choosing_and_tuning.md).
enum class TuningMode : std::uint8_t {
  file,        // a tuning file, if there is one for this machine; else prices on a network of the
               // link's rate
  model,       // prices alone, by what the file says of the machine; its rules and findings do not
               // count
  first_call,  // as file, and when an operation is made, a few schedules are timed, none of
               // them begun after 50 ms
  off,         // prices on a network of the link's rate; no file is read
};

/// Options that are left empty come from the TUTTI_* environment (docs/settings.md), else they have
/// their default.
struct ContextOptions {
  std::string device = {};                      // name or name:port; default: the best one
  std::optional<std::size_t> arena_bytes = {};  // for slots and send buffers; default 16 MiB
  /// How many connections to ranks of other nodes there are at most.  Making an operation closes
  /// connections that no live operation needs if there would be more.  By default, and for 0, there
  /// are as many as the device allows.  Where ranks differ, schedules are chosen for the least.
  std::optional<std::uint32_t> connections_max = {};
  std::optional<CheckLevel> check = {};  // default: collective
  /// Payloads of more bytes than this are sent in chunks.  Must be equal on all ranks.  A plan that
  /// cuts the payload into parts works on a chunk of each part at a time.  By default, and for 0,
  /// it is 64 KiB where ranks share nodes, 128 KiB where each rank is a node of its own, and 1 MiB
  /// for zero copy; it is less where a plan has so many slots that they would not fit into 8 MiB.
  /// Zero-copy broadcasts and allgathers have pieces of their own instead.
  std::optional<std::size_t> chunk_bytes = {};
  /// From how many bytes on ranks of one node read each other's buffers (process_vm_readv) instead
  /// of sending, if all ranks share the node and the kernel permits it.  Must be equal on all
  /// ranks.
  ///  * broadcast: from this size to 2 MiB;
  ///  * reduce of two ranks, by an operator that commutes: from this size to 512 KiB;
  ///  * allreduce of two ranks, by an operator that commutes: from 64 times this size on;
  ///  * blocks (block_collectives.hpp): from twice this size on.
  /// 0 and 1 mean always, SIZE_MAX means never.  By default, when a communicator is made, the first
  /// two ranks of a node measure within 20 ms which way is faster
  /// (Communicator::single_copy_remark()).
  std::optional<std::size_t> single_copy_bytes = {};
  /// Whether zero-copy operations (segment.hpp) may register buffers that lie in no segment.  Must
  /// be equal on all ranks.  Such a buffer must stay mapped until the operation is destroyed, and
  /// the kernel may pin its pages.  start() then accepts no other target than the registered one.
  /// After a failure of the communicator, peers that still write into the buffer lose their
  /// connection to this context.  Default: false.
  std::optional<bool> register_buffers = {};
  std::optional<Timeout> setup_timeout = {};  // of each collective set-up step; default 30 s
  /// Within which time a rank that waits finds out that a process of its host has died, and tells
  /// the others there: 10 ms to an hour.  Ranks may differ.  Default: 1 s.
  std::optional<Timeout> detection_bound = {};
  /// Whether Communicator::shrink() can be called later.  Each rank then listens at a TCP port of
  /// its own, which the kernel chooses: of the loopback if all ranks run on one host, else of its
  /// first network interface; from when a communicator is made, also by split(), until it and all
  /// that it was shrunk to are destroyed.  Must be equal on all ranks.  Default: false.
  std::optional<bool> shrinkable = {};
  std::optional<ConnectBy> connect = {};  // alike on all ranks; default: exchange
  std::optional<Notify> notify = {};      // alike on all ranks; default: immediate
  std::optional<WaitPolicy> wait = {};    // of this context; default: automatic
  std::optional<SharedNotifications> shared_notifications = {};  // alike on all ranks; automatic
  /// Messages per round of every operation.  By default, and for an empty vector, the library
  /// decides.
  std::optional<std::vector<std::uint32_t>> per_round = {};
  /// Imposes a node shape: how many ranks each node has, where the last entry holds for all further
  /// nodes.  Must be equal on all ranks.  {1} means no shared memory.  The ranks of a node must be
  /// able to share memory.  Default: the ranks of a host that have mapped each other's memory are a
  /// node.
  std::optional<std::vector<std::uint32_t>> ranks_per_node = {};
  std::optional<Placement> placement = {};  // of an imposed shape; default: block
  /// In a node of more ranks than this, the ranks of a domain (the CPUs of one last-level cache and
  /// NUMA node) meet first, in barriers and small allreduces, if each rank is bound to one domain.
  /// Must be equal on all ranks.  SIZE_MAX means never.  Default: 16.
  std::optional<std::size_t> domains_above = {};
  /// Imposes domains on every node, however many ranks it has: how many ranks each domain has, in
  /// rank order, where the last entry holds for all further domains.  Must be equal on all ranks.
  /// Default: the domains that are found.
  std::optional<std::vector<std::uint32_t>> ranks_per_domain = {};
  /// Path of the tuning file.  If it cannot be read, or something in it is wrong, no rank can make
  /// a communicator: all get Error{invalid_argument}, which names the first such rank, the file,
  /// the line and the reason.  A file of another device or rate is left aside.  By default it is
  /// the first one that is there, and right, of $XDG_CONFIG_HOME/tutti/tuning.json (without that
  /// variable, ~/.config/tutti/tuning.json) and /etc/tutti/tuning.json; `tutti-info` says which,
  /// and why not the others.  Where the ranks of a communicator have different files, they take
  /// that of rank 0.  How devices place writes is an exception: each rank goes by its own file.
  std::string tuning_file = {};
  std::optional<TuningMode> tuning = {};  // alike on all ranks; default: file
  /// Whether a tuning file leaves the bits of results as they would be without it.  Must be equal
  /// on all ranks.  Default: false; a file may change bits as far as the Agreement allows.
  std::optional<bool> tuning_keeps_bits = {};
  /// Whether rank 0 of each communicator appends what first calls find (TuningMode::first_call) to
  /// the tuning file, for later programs: the one that it has found, else the user's own.  After
  /// split() there are many such ranks; one that finds the file locked for 100 ms leaves it.  An
  /// operation is made all the same where that fails; Operation::explanation() says why.  Default:
  /// false.
  std::optional<bool> tuning_appends = {};
  /// A signal, such as SIGUSR1, on which this process prints the reports of its communicators on
  /// standard error, once it tests in the library, or waits there for more than some microseconds.
  /// Default: none.
  std::optional<int> report_signal = {};
};

/// Owns the device, the arena, completion queues and the connections, one for each peer process
/// that some plan needs.  Only one thread at a time may use the context and everything made from
/// it.  It must outlive its communicators (checked, also when another context is assigned to it).
///
/// A forked child cannot use its parent's context, nor anything made from it: making an object
/// throws Error{invalid_argument}, calls return `aborted` without telling any rank, and the memory
/// of segments is not mapped.  The child may destroy these objects; the parent is not affected and
/// goes on.  A child may make a context of its own, over an exchange of its own.
class TUTTI_EXPORT Context {
 public:
  /// Opens the device and registers the arena.  Throws Error.  It is Error{invalid_argument} if an
  /// option is wrong, if the environment has an unknown TUTTI_* name, or if the value of a known
  /// one cannot be read.
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
/// a node, and send to each other through it; over an emulated network every rank is a node of its
/// own.  Context and exchange are borrowed and must outlive the communicator, which must outlive
/// its operations (checked).  Communicators over one exchange share its incidents: a rank that dies
/// or gives up ends them all.  Give each an exchange of its own to keep them apart.
///
/// All ranks call collective functions in the same order.  If ranks call different functions, or
/// one function on different communicators of an exchange, every rank throws Error{mismatch}, which
/// names the calls and the ranks, and the communicators stay usable.
class TUTTI_EXPORT Communicator {
 public:
  /// Introduces the ranks to each other.  Collective.  Throws Error, on all ranks: mismatch if they
  /// have settings that have to be alike, or ports of different kinds; invalid_argument if one was
  /// given a tuning file that it cannot take.
  Communicator(Context& context, Exchange& exchange);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  /// The ranks that give the same color become a communicator of their own, ordered by key, then by
  /// rank here.  Collective; a rank without a color takes part and gets no communicator.  As
  /// MPI_Comm_split.
  ///
  /// Operations of communicators are independent of each other, also where these share ranks.  The
  /// new communicators borrow this one, which must outlive them (checked).  They introduce their
  /// ranks through it and need no exchange of their own, but share the incidents of its exchange,
  /// also those of ranks that they do not have.  Ranks share a node there if they do here.  Each
  /// new communicator takes an operation of this one, with small buffers.
  ///
  /// Throws Error.  An error in one part alone is not known to the other parts, but ranks that do
  /// not come in time end them all.
  std::optional<Communicator> split(std::optional<std::uint32_t> color, std::int64_t key = 0);

  /// Memory for buffers that need not be copied, from the arena (ContextOptions::arena_bytes).
  /// Collective, with one scope on all ranks.  Each rank may ask for any number of bytes; with
  /// Scope::node, the ranks of a node ask for the same number.  Throws Error on all ranks:
  /// limit_exceeded if one has no room, mismatch.
  Segment allocate(std::size_t bytes, Scope scope = Scope::rank);

  Rank rank() const noexcept;
  std::uint32_t rank_count() const noexcept;
  Node node()
      const noexcept;  // of this rank; nodes are numbered in the order of their lowest ranks
  std::uint32_t node_count() const noexcept;
  /// One line: why ranks that may be a node (same host and namespaces) are not.  Else empty.
  const std::string& node_remark() const noexcept;
  /// A line for people, the same on all ranks: from which sizes on ranks read each other's buffers,
  /// and by which figures this was decided (ContextOptions::single_copy_bytes).
  std::string single_copy_remark() const;

  /// Gives up: every operation in flight here returns `aborted`, and so do those of the other ranks
  /// within twice the detection bound (docs/guarantees.md).  Over an exchange without a side
  /// channel, those of this host do, and the others time out instead.
  void abort() noexcept;

  /// Makes a communicator of the ranks of this one that are still there, in their order here, over
  /// the same context.  Collective: each of them waits for all others.  A rank is gone only if it
  /// has died or destroyed all of this line: this one, those it was shrunk from and shrunk to.  All
  /// survivors get the same ranks, also if more die meanwhile; a rank that dies after all have met
  /// may still be among them, and is then found as in any communicator.  A rank that has got such a
  /// communicator calls shrink() of that one, and meets those there that are still in this call.
  ///
  /// This communicator is best destroyed afterwards, with its operations; if it has not failed it
  /// stays usable.  The new one has an exchange of its own, over TCP, and borrows neither this one
  /// nor its exchange.  On its rank 0 a thread relays, and the destructor waits for the other
  /// ranks, as that of tcp_exchange() does, at most for the set-up timeout.
  ///
  /// Needs ContextOptions::shrinkable.  Throws Error: timed_out, with the ranks that did not come
  /// and whose processes may still be there (they may be stopped, slow, or elsewhere in their
  /// program), after which it can be called again; invalid_argument without that option; and what
  /// making a communicator throws.
  Communicator shrink(Timeout timeout);

  /// Gives up all calls in flight of this communicator's operations, on all ranks together: for
  /// ranks whose wait() has timed out because one of them was late, and who do not want the results
  /// any more.  Collective: the ranks whose own calls have finished, or were never started, call
  /// it, too.  Each of its steps waits for at most the set-up timeout.
  ///
  /// Afterwards no operation is in flight, and all can be started again, on any buffers that they
  /// could be started on before, as if they had just been made: their calls are counted from 1.  No
  /// process reads the sources of the calls before, or writes their targets.  The targets of those
  /// that were in flight here have undefined content; results of calls that had finished stay.
  /// Operations of other communicators are not touched, nor are those of what was split from this
  /// one.
  ///
  /// Throws Error, as making an operation does.  If ranks make different calls (mismatch), all that
  /// was in flight still is.  After timed_out, which names the ranks that did not come, and after
  /// peer_failed the communicator has failed; after system (no memory) it may have, see failure().
  void cancel();

  /// Out of band, no rank returns before all have entered.  Collective.  Slow; for set-up and
  /// tests. Throws Error.
  void synchronize();

  /// Makes one step of progress for all operations of the context, and looks for dead peers now and
  /// then.  Returns ok, or the failure of this communicator.
  Status progress() noexcept;

  /// The first failure; its status is `ok` while there is none.
  const Failure& failure() const noexcept;

  /// What the operations of this communicator are doing, in the order in which they were made: how
  /// many calls, which round, for how long there was no progress, which ranks are missing.  Of
  /// those of this node also what they do at this moment: whether their process runs, is stopped or
  /// has ended, and which call of which operation they are in.  Lines for people, or a JSON object.
  /// Asks no other rank, so that it also answers where they hang.  Allocates; not for the data
  /// path.
  std::string report(ReportFormat format = ReportFormat::text) const;

  struct Implementation;
  explicit Communicator(std::unique_ptr<Implementation>) noexcept;
  Implementation& implementation() noexcept { return *implementation_; }

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tutti
