#include "runtime/settings_table.hpp"

#include <tutti/detail/enumerators.hpp>

namespace tutti::runtime {
namespace {

using enum SettingGroup;

constexpr Setting table[] = {
    {device_and_memory, "TUTTI_DEVICE", "name or name:port", "the nearest active port",
     "Which device and port carry messages to other nodes.",
     "A real device is taken before a software device. tutti-info says which port was chosen, and "
     "for each other port why not."},
    {device_and_memory, "TUTTI_ARENA_BYTES", "bytes, e.g. 64M", "16M",
     "How much registered memory a context has.", ""},
    {device_and_memory, "TUTTI_CONNECTIONS_MAX", "a number", "what the device allows",
     "How many connections a context has at most.",
     "Making an operation closes connections that no live operation needs if there would be more. "
     "0: as many as the device allows. Where ranks differ, schedules are chosen for the least."},
    {device_and_memory, "TUTTI_REGISTER_BUFFERS", "0|1", "0",
     "Whether operations may register users' buffers, to send from them and write into them.",
     "It concerns operations that can be zero-copy and buffers that do not lie in a Segment. The "
     "memory must stay mapped for as long as the operation exists, and start(source, target) with "
     "another target aborts the program. All ranks must agree."},
    {device_and_memory, "TUTTI_CHECK", "off|local|collective", "collective",
     "What is verified when an operation is made.",
     "off: only what memory safety needs is checked. local: this rank's arguments are checked. "
     "collective: the ranks also compare their arguments."},
    {device_and_memory, "TUTTI_SETUP_TIMEOUT", "seconds", "30",
     "How long each collective set-up step may take.", ""},
    {device_and_memory, "TUTTI_DETECTION_BOUND", "seconds, 0.01 to 3600", "1",
     "Within which time a rank that waits finds out that a process of its host has died.",
     "A rank that waits looks ten times within it, by one or two system calls, and tells the "
     "others of its host; the side channel of the bootstrap is asked as often. Ranks may differ."},
    {device_and_memory, "TUTTI_SHRINKABLE", "0|1", "0",
     "Whether communicators can be shrunk to the ranks that are still there.",
     "1: each rank listens at a TCP port of its own for as long as a communicator lives, or one "
     "that it was shrunk to; it is gone only once it has destroyed all of these. All ranks must "
     "agree."},
    {device_and_memory, "TUTTI_CONNECT", "exchange|cm", "exchange",
     "How queue pairs are connected: out of band, or by IP address (rdma_cm).",
     "cm needs a RoCE device with an IPv4 or a routable IPv6 address. All ranks must agree."},

    {messages, "TUTTI_PER_ROUND", "e.g. 3,2,1", "what costs least",
     "How many messages a rank sends in each round.",
     "The product of all entries plus one has to cover the ranks. Schedules that cannot follow a "
     "vector ignore it. Trees of broadcast and reduce, and allgather(v), follow it across the "
     "nodes, which it has to cover. For barrier and allreduce it is a vector of all ranks, so they "
     "are flat unless the call says otherwise. The rule is in algorithms/plan/core/per_round.hpp."},
    {messages, "TUTTI_TUNING", "file|model|first_call|off", "file",
     "By what the ranks choose their schedules.",
     "file: by the rules and findings of a tuning file, and prices on the machine that it "
     "describes; where there is none for this machine, prices on a network of the link's rate. "
     "model: prices alone, on the machine that the file describes. first_call: as file, and when "
     "an "
     "operation is made that nobody says how to do, a few schedules are timed on memory of their "
     "own, none after 50 ms; the model decides alone where ranks share CPUs, for users' operators, "
     "for more than 4 MiB, and where buffers are registered or shared. off: no file is read. All "
     "ranks must agree."},
    {messages, "TUTTI_TUNING_FILE", "a path", "the first that is found",
     "Which tuning file is taken.",
     "If it cannot be read, or something in it is wrong, making a communicator fails on all ranks, "
     "with the line and the reason. Without it, $XDG_CONFIG_HOME/tutti/tuning.json (or "
     "~/.config/tutti/tuning.json) and /etc/tutti/tuning.json are looked for, and what is wrong "
     "with them is only said, by tutti-info. A file of another device or rate is left aside. Where "
     "the ranks of a communicator have different files, that of rank 0 holds for all. How devices "
     "place writes is an exception: each rank goes by the file that it finds itself, so where "
     "TUTTI_NOTIFY=flag needs it, it has to be on all nodes."},
    {messages, "TUTTI_TUNING_BITS", "free|keep", "free",
     "Whether a tuning file may change bits of results.",
     "free: as far as the agreement of a call allows. keep: results have the bits that they would "
     "have without a file. All ranks must agree."},
    {messages, "TUTTI_TUNING_APPEND", "0|1", "0",
     "Whether rank 0 of each communicator appends what first calls find to the tuning file.",
     "It needs TUTTI_TUNING=first_call, without which it does nothing, as tutti-info says. The "
     "file is the one that rank 0 of each communicator has found, else the user's own, which is "
     "made. A call that already has a finding is left as it is, and nothing is appended to a file "
     "of another machine or while somebody else writes it. Operation::explanation() of rank 0 says "
     "what became of it."},
    {messages, "TUTTI_CHUNK_BYTES", "bytes, e.g. 64K", "64K in a node, 128K across",
     "How large the chunks are in which larger payloads are sent.",
     "The default is 64K where ranks share nodes, 128K where each rank is a node of its own, and "
     "1M where an operation is zero-copy; less where a plan has many slots, and 8K for the pieces "
     "of chains and rings of blocks. On a single node, if the smallest arena has room for them, "
     "broadcasts of 1M and more go in chunks of 128K to 256K, and blocks of up to eight ranks in "
     "chunks of 73K to 256K. Where a plan cuts the payload into parts, it is a chunk of each part. "
     "Pieces never take more than their share of the arena."},
    {messages, "TUTTI_SINGLE_COPY_BYTES", "bytes, measured or never", "measured",
     "From how many bytes on ranks of a node read each other's buffers.",
     "It holds where all ranks share a node and the kernel permits it (process_vm_readv). "
     "measured: the first two ranks of a node measure within 20 ms what reading and copying cost "
     "there, and all ranks take the cheaper way; where the two do not meet in time, or their "
     "figures do not agree, nothing is read. A number: read are broadcasts of that size to 2M, "
     "reduces of two ranks of that size to "
     "512K, allreduces of two ranks (by a built-in operator that commutes, or relaxed) of 64 times "
     "that size and more, and blocks of twice that size and more; 0 and 1: always. "
     "Operation::algorithm() is then single_copy. Choose never also for buffers that other "
     "processes cannot read, for example those of a device. All ranks must agree."},
    {messages, "TUTTI_NOTIFY", "immediate|flag", "immediate",
     "How messages to other nodes say that they are there.",
     "immediate: with a completion. flag: messages of up to 56 bytes are one line of memory that "
     "their receiver polls. This needs a device which is known to place a line whole, as the "
     "software device is, or a tuning file which says that this one was seen to do so "
     "(tutti-tune); elsewhere making the context fails. All ranks must agree."},
    {messages, "TUTTI_SHARED_NOTIFICATIONS", "automatic|words|republished", "automatic",
     "How the ranks of a node learn what has arrived for any of them, in shared_ring.",
     "words: the device writes words that all ranks of the node see, which needs a device that "
     "places writes in order, or a tuning file which says that this one was seen to do so "
     "(tutti-tune). republished: the rank that polls writes them. automatic takes words on the "
     "software device alone. All ranks must agree."},
    {messages, "TUTTI_REPORT_SIGNAL", "the name of a signal, e.g. USR1", "none",
     "On which signal a process prints what its operations are doing.",
     "The report is that of Communicator::report(), for each communicator, on standard error. It "
     "is printed by whoever tests in the library, or waits there for more than some microseconds, "
     "within a tenth of a second. A handler "
     "that the program has installed before is called, too. tutti-info attach looks at a process "
     "from outside, also at one that does not wait in the library."},
    {messages, "TUTTI_STRAGGLERS", "0|1", "0",
     "Whether each rank prints, when a communicator is destroyed, for whom it has waited.",
     "The table is on standard error: for each other rank, the ones waited for longest first, the "
     "time in all, the longest time at once, and how often it was the last one that a call needed. "
     "What calls wait within their first microseconds is not counted, nor is what happens between "
     "calls of test(). Communicator::report() has the same numbers at any time."},
    {messages, "TUTTI_TRACE", "a path, e.g. trace.%r.json", "none",
     "Into which file each rank writes when its calls, rounds and waits began and ended.",
     "%r is the rank in the first communicator of the context; without it, a point and the rank "
     "are appended. Further contexts of a process with the same rank append .2, .3 and so on, and "
     "so do processes that find the file locked by another one that writes its trace there "
     "(flock). The file is JSON that ui.perfetto.dev and chrome://tracing show; the events of "
     "several ranks may be joined. It is written when the context is destroyed, and when its first "
     "communicator fails, which takes up to a second per 16M of TUTTI_TRACE_BYTES. Times are those "
     "of the monotonic clock, which is one for the ranks of a host. If the file cannot be written, "
     "making a communicator fails on all ranks."},
    {messages, "TUTTI_TRACE_BYTES", "bytes, e.g. 64M, 4K to 64G", "4M",
     "How much memory a trace has, of 16 bytes for each begin or end.",
     "The newest events are kept, and the file says how many were dropped. A small allreduce of "
     "two ranks has two to four."},
    {messages, "TUTTI_TRACE_SHORT_CALLS", "sampled|all", "sampled",
     "Whether a trace times all calls, or samples those that follow each other quickly.",
     "sampled: where begins and ends would take more than a twentieth of the time, one call of 2, "
     "4, 8, 16 or 32 is timed, if possible the same on all ranks; the file says how many were not. "
     "A call that waits for more than some microseconds is always timed, from then on. all: each "
     "call is timed, which may make the smallest ones a fifth slower."},
    {messages, "TUTTI_WAIT", "automatic|spin|yield|block", "automatic",
     "What a thread that waits does with its core.",
     "automatic: with a CPU for each rank of the host (where it may run: sched_getaffinity) it "
     "spins for 1 ms, then yields, and sleeps for 1 ms between polls only once nothing has arrived "
     "for a second; where ranks exceed CPUs it yields at once, and sleeps so after 10 ms. spin: it "
     "never yields; for ranks with cores of their own. yield: it always yields. block: it yields, "
     "and once nothing has arrived for 50 us, it sleeps until something does, and is woken by the "
     "device's completion channel or by the rank of its node that has sent; where messages are "
     "polled in memory (TUTTI_NOTIFY=flag between nodes, shared_ring), it sleeps between polls "
     "instead, at first for 10 us and later for up to 1 ms. Ranks may differ. tutti-bench wake "
     "measures all four."},

    {nodes, "TUTTI_RANKS_PER_NODE", "e.g. 2 or 3,1,2", "what is found",
     "How ranks are grouped into nodes.",
     "By default the ranks of a host that have mapped each other's memory are a node. A value "
     "imposes the shape; its last entry holds for all further nodes. 1: all messages go through "
     "the device. All ranks must agree. After shrink() each rank is still on its node."},
    {nodes, "TUTTI_PLACEMENT", "block|cyclic|random", "block",
     "Which ranks go to which imposed node.", "It needs TUTTI_RANKS_PER_NODE."},
    {nodes, "TUTTI_DOMAINS_ABOVE", "ranks, or never", "16",
     "Above which size the domains of a node (last-level caches, NUMA nodes) meet first.",
     "It concerns barriers and small allreduces of nodes with more ranks than this, if each rank "
     "is bound to a domain. The default is a first guess, not a measurement."},
    {nodes, "TUTTI_RANKS_PER_DOMAIN", "e.g. 2 or 3,1,2", "what is found",
     "How the ranks of each node are grouped into imposed domains.", ""},

    {tcp_bootstrap, "TUTTI_RANK", "0 .. size-1", "none", "This process's rank.",
     "tutti-bench uses the tcp bootstrap if TUTTI_RANK is set."},
    {tcp_bootstrap, "TUTTI_SIZE", "1 ..", "none", "The number of ranks.", ""},
    {tcp_bootstrap, "TUTTI_RENDEZVOUS", "host:port", "none", "Where rank 0 listens.",
     "An address is safer than a name, because some hosts resolve their own name to 127.0.1.1."},
    {tcp_bootstrap, "TUTTI_SECRET", "any text", "none", "What the ranks of one job share.",
     "A connection that does not prove to know it is refused; the secret itself is not sent. Other "
     "processes of the same user can see it in the environment, which the library leaves as it "
     "is."},
    {tcp_bootstrap, "TUTTI_SECRET_FILE", "a path", "none",
     "The file that has the secret, in place of TUTTI_SECRET.",
     "It is refused if others than its owner may read or change it. A newline at its end is no "
     "part of the secret."},
    {tcp_bootstrap, "TUTTI_SECRET_FD", "a number", "none",
     "The open descriptor from which the secret is read, in place of TUTTI_SECRET.",
     "It is read to its end once for all exchanges of the process, and then closed unless it is a "
     "standard stream. Each rank needs a pipe of its own; a file may be the same for all."},
    {tcp_bootstrap, "TUTTI_BOOTSTRAP_TIMEOUT", "seconds", "30",
     "How long all ranks may take to meet.",
     "Rank 0, which relays, also waits that long for the others to leave before its exchange is "
     "destroyed."},

    {software_device, "TUTTI_SOFT_TRANSPORT", "auto|shared|cma|bounce", "auto",
     "How the software device moves data.",
     "auto: a shared mapping where the memory allows it, else process_vm_writev (cma), else a "
     "buffer and the target's help (bounce)."},
    {software_device, "TUTTI_SOFT_PROMOTE", "0|1", "0",
     "Whether registered private memory is moved to a sealed file, to be mapped by others.", ""},
    {software_device, "TUTTI_SOFT_STORES", "auto|plain|streaming", "auto",
     "How it stores writes of 32 KiB and more into shared maps.",
     "auto: past the caches while this is several times as fast, as it is where two CPUs share no "
     "cache."},
    {software_device, "TUTTI_SOFT_LOG", "off|transport", "off",
     "Whether it prints on stderr which transport it takes, and why.", ""},
    {software_device, "TUTTI_SOFT_FABRIC", "qdr|fdr|edr|hdr|ndr|roce100|roce25|roce10|FILE", "none",
     "Which network it emulates.",
     "With one, every rank is a node of its own unless a shape is imposed. verbs/soft/EMULATION.md "
     "has the presets' parameters and the format of a file."},
    {software_device, "TUTTI_SOFT_PLACE", "0 ..", "0", "The place of this process in that network.",
     ""},
    {software_device, "TUTTI_SOFT_DEVICES", "soft0:1,soft1:2", "soft0:1",
     "Which software devices there are, and how many ports each has.",
     "There can be up to 8 devices of up to 4 ports."},
    {software_device, "TUTTI_SOFT_LINK_DOWN", "soft1:2,...", "none",
     "Which ports of software devices have a link that is down.", ""},

    {mpi_programs, "TUTTI_MPI", "off|on|verify|report", "on",
     "What libtutti-mpi does with the collectives of a program that it was loaded into.",
     "off: MPI does all of them. on: tutti does those that it can. verify: both do, results are "
     "compared, and the program gets those of MPI. report: MPI does all of them; they are counted "
     "and timed, and what tutti would save is estimated. It and the following have to be alike on "
     "all ranks; where they are not, MPI does everything."},
    {mpi_programs, "TUTTI_MPI_AFTER", "a number", "3",
     "How many calls of a kind are left to MPI before tutti makes an operation for them.",
     "Calls of one collective with one operator, type, size and root on one communicator are of a "
     "kind. Small payloads count as if they were as long as the next power of two. After the first "
     "32 communicators of a process, others need 1,000 calls."},
    {mpi_programs, "TUTTI_MPI_BYTES", "bytes, e.g. 64K, up to 1G", "1M",
     "Up to how many bytes a call is taken.",
     "Where each rank has a block, as in an allgather, the blocks of all ranks are counted."},
    {mpi_programs, "TUTTI_MPI_COMMUNICATORS", "a number", "64",
     "On how many communicators of a process calls are taken at the same time.",
     "Where one rank of a communicator has as many already, the calls of all its ranks pass."},
    {mpi_programs, "TUTTI_MPI_TABLE", "0|1", "0",
     "Whether rank 0 prints at the end how many calls were taken, and why others were not.",
     "It is enough if one rank has it. With TUTTI_MPI=verify or report there is a table anyway."},
};

}  // namespace

std::span<const Setting> settings() noexcept {
  return table;
}

const char* name_of(SettingGroup group) noexcept {
  return detail::name_in<mpi_programs>(
      {"Device, memory, set-up", "Messages and waiting", "Nodes", "The tcp bootstrap",
       "The software device", "Unmodified MPI programs"},
      group);
}

}  // namespace tutti::runtime
