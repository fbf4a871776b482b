// The collectives: raw factories, and thin typed templates over them.
// Every factory is collective over the communicator, may block, and throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/algorithm.hpp"
#include "tutti/communicator.hpp"
#include "tutti/export.hpp"
#include "tutti/operation.hpp"
#include "tutti/reduction.hpp"

namespace tutti {

namespace detail {
/// Takes the place of a factory's call, and is collective as that is: every rank throws Error, this
/// one with `why`, the others with the rank that refused.
[[noreturn]] TUTTI_EXPORT void refuse(Communicator& communicator, const char* collective,
                                      const char* why);
/// Likewise in place of Communicator::allocate(), for which the other ranks make a segment.
[[noreturn]] TUTTI_EXPORT void refuse_segment(Communicator& communicator, const char* why);
}  // namespace detail

struct BarrierArguments {
  std::vector<std::uint32_t> per_round = {};   // messages per round, the same on every rank; if
                                               // empty, the context's, else what costs least
  Algorithm algorithm = Algorithm::automatic;  // or dissemination; the same on every rank
  Across across = Across::automatic;           // the same on every rank; lanes are leaders here,
                                               // as there is no payload to be cut
};

/// No rank finishes before every rank has started.
///
/// n-way dissemination takes ceil(log_{n+1} P) rounds over all ranks, or over one rank of each
/// node, with a round before it and one after it in shared memory (V. Tipparaju, J. Nieplocha, D.
/// Panda, IPDPS 2003).  In nodes of many ranks, the ranks of a domain meet first
/// (ContextOptions::domains_above).
TUTTI_EXPORT Operation barrier(Communicator& communicator, const BarrierArguments& arguments = {});

struct AllreduceArguments {       // raw form
  const void* source = nullptr;   // element_count elements; may equal target (in place)
  void* target = nullptr;         // element_count elements; contents undefined until ok
  std::size_t element_count = 0;  // elements, not bytes; the same on every rank; 0 is allowed
  Reduction reduction = {};       // the same on every rank
  Agreement agreement = Agreement::identical;  // the same on every rank; see allreduce()
  std::vector<std::uint32_t> per_round = {};   // messages per round, the same on every rank; if
                                               // empty, the context's, else what costs least
  Algorithm algorithm = Algorithm::automatic;  // the same on every rank
  Across across = Across::automatic;           // the same on every rank; if leader or lanes,
                                               // algorithm and per_round are those across nodes
};

/// target = source of rank 0 o source of rank 1 o ... , on every rank.
///
/// Order.  An operator that does not commute is applied in rank order, at every agreement.  Order
/// cannot change the bits of integers, min, max and and/or/xor.  It may show in the bits of sums
/// and products of floating-point elements, and of users' operators on floating-point elements or
/// on elements of no known type (ElementType::other).  A user's operator has to give equal bits for
/// equal operands; on integer elements it is taken to be exactly associative.
///
/// Where order cannot show, and for Agreement::relaxed, the schedule is n-way dissemination, for
/// any number of ranks: ceil(log_{n+1} P) rounds of at most n messages of element_count elements
/// (twice as many elements where an operator that does not commute has to carry both sides of the
/// seam). If the operator commutes, messages of a round are combined in the order in which they
/// arrive, so the last bits of `relaxed` results may differ between ranks and between calls.
///
/// Agreement::identical: all ranks evaluate one expression, in rank order (for Algorithm::ring, in
/// the order of the ring).  Where the number of ranks is a product of small factors (2 .. 8, 12,
/// 16, 24, 32, 48, 64, 96, ...), the schedule is recursive multiplying, in as many rounds as
/// dissemination.  For other numbers, small payloads take a schedule of `reproducible`, also in as
/// many rounds; larger ones take recursive multiplying with a round before it and one after it, in
/// which adjacent ranks fold.  per_round must cover the ranks in any case.  If the product of its
/// (n+1) is their number, recursive multiplying takes it as it is; else its entries are upper
/// bounds of the rounds, and the rounds of the fold come in addition, with at most the largest
/// entry.
///
/// Agreement::reproducible: the expression is that of one tree over the ranks, in rank order, which
/// depends on their number alone: the lower half (the largest power of two below the count) o the
/// upper half, and so on.  Values travel as blocks of that tree, as contributions which every rank
/// folds, or, if large, in P parts of which each rank folds one; the cheapest of these is taken.
///
/// From 64 KiB on, among up to 32 ranks, each rank folds one part of the payload for all, along
/// that tree, where two rounds of P - 1 messages are expected to be cheaper than the schedules
/// above. This keeps the promises of every agreement.
///
/// Where ranks share nodes, `across` decides whether the values of a node's ranks are combined in
/// shared memory first, and the result returned through shared memory last.  The shape of the nodes
/// then decides which of the equally right results `identical` and `relaxed` give.  Operators that
/// do not commute allow it where the ranks of each node are consecutive; `reproducible` floating
/// point does not.
///
/// `algorithm` takes a schedule by name.  Throws Error{unsupported} if the schedule cannot keep the
/// promise, and lists those that can; Error{invalid_argument} if it does not exist for these ranks
/// with that n, and names the nearest n that works.  At CheckLevel::collective, ranks that round
/// differently (rounding mode, FTZ, DAZ) get Error{mismatch} unless relaxed is asked for.
///
/// Where every rank is a node of its own and has its buffers in registered memory (segment.hpp),
/// payloads from 64 KiB on that go in parts or by the ring are sent from the source and land in the
/// target.
///
/// Two ranks that share a node read each other's buffers (process_vm_readv) only if
/// ContextOptions::single_copy_bytes is given, for payloads of at least 64 times as many bytes. The
/// operator must be built-in and commute; a user's operator must commute, too, and its order must
/// not show or relaxed be asked for.
///
/// Algorithm::shared_ring: start() leaves the contribution in memory that the ranks of the node
/// share.  From then on any rank of the node that is in test() or wait() does the work of the node:
/// a rank that computes, or is stopped, after start() holds up no other rank in that call.  There
/// are two exceptions: the software device may have to move data by TUTTI_SOFT_TRANSPORT=bounce,
/// and a rank that is stopped in the middle of test() or wait() may have claimed a chunk of the
/// payload.  All this needs a device that places writes in order, as the software device does. With
/// SharedNotifications::republished, as on other devices unless words are asked for, some ranks of
/// a node have to be in test() or wait(), of any operation, for the others to go on: those to which
/// ranks of the node before send, one for each such rank; describe() names them.  A payload goes
/// around in laps, of which 2 MiB are in flight (another size with ContextOptions::chunk_bytes).
/// The first rank of one of N nodes holds the laps in flight 2 + 2/N times in its arena, and each
/// rank its contributions to them, or to a whole payload if there is room.  Of a longer payload,
/// the others wait for a rank that computes or is stopped only if its arena has no room for a whole
/// payload, and not before the laps in flight are done.
///
/// Algorithm::automatic takes it, too, where it costs least and all ranks have room for it; then 1
/// MiB is in flight, and each arena has as much room left as the ring takes.
///
/// Slots and send buffers come from the arena of the context: Error{limit_exceeded} when it is
/// full.
TUTTI_EXPORT Operation allreduce(Communicator& communicator, const AllreduceArguments& arguments);

/// Typed form with a built-in operator: allreduce<double>(communicator, source, target,
/// tutti::sum).  Source and target have equal sizes.
template <Element T, BuiltIn which>
requires(defined_for(which, element_type_of<T>())) Operation
    allreduce(Communicator& communicator, std::span<const T> source, std::span<T> target,
              BuiltInOperator<which>, Agreement agreement = Agreement::identical) {
  if (source.size() != target.size())
    detail::refuse(communicator, "allreduce", "source and target differ in size");
  return allreduce(communicator, {.source = source.data(),
                                  .target = target.data(),
                                  .element_count = source.size(),
                                  .reduction = built_in_reduction(which, element_type_of<T>()),
                                  .agreement = agreement});
}

/// Typed form with a user's operator, made by elementwise<T, function>().
template <Element T>
Operation allreduce(Communicator& communicator, std::span<const T> source, std::span<T> target,
                    const Reduction& reduction, Agreement agreement = Agreement::identical) {
  if (source.size() != target.size())
    detail::refuse(communicator, "allreduce", "source and target differ in size");
  if (reduction.element_bytes != sizeof(T))
    detail::refuse(communicator, "allreduce", "the reduction is for another element size");
  return allreduce(communicator, {.source = source.data(),
                                  .target = target.data(),
                                  .element_count = source.size(),
                                  .reduction = reduction,
                                  .agreement = agreement});
}

struct AllreduceSspArguments {
  const void* source = nullptr;   // element_count elements; may equal target (in place)
  void* target = nullptr;         // element_count elements; contents undefined until ok
  std::size_t element_count = 0;  // elements, not bytes; the same on every rank; 0 is allowed
  Reduction reduction = {};       // the same on every rank; commutative
  std::uint32_t slack = 0;        // calls, the same on every rank
};

/// Stale-synchronous allreduce (M. A. Al Ahad et al., PAW-ATM 2018, III.A).  The result of call t
/// contains exactly one contribution of every rank: this rank's from call t, each other one from
/// one of the calls t - slack .. t.  A late rank holds up the others only when they would be more
/// than slack calls ahead of what they have received from it.  After ok, Operation::staleness() is
/// the age of the oldest contribution.
///
/// Results of different ranks differ where slack > 0; with slack 0 it is a relaxed allreduce.  The
/// schedule is two-partial dissemination over all ranks, in 2 slack + 2 copies of its slots and
/// partials, for whole payloads.  The arena has to hold these, and a queue pair as many receives
/// for each message: Error{limit_exceeded}.  Throws Error{unsupported} where the operator does not
/// commute.
///
/// All ranks have to start it equally often, and to meet (synchronize()) before any of them
/// destroys the communicator: a rank that is still behind would otherwise miss one that has left
/// more than 8 s ago.
TUTTI_EXPORT Operation allreduce_ssp(Communicator& communicator,
                                     const AllreduceSspArguments& arguments);

/// Typed form with a built-in operator.  Source and target have equal sizes.
template <Element T, BuiltIn which>
requires(defined_for(which, element_type_of<T>())) Operation
    allreduce_ssp(Communicator& communicator, std::span<const T> source, std::span<T> target,
                  BuiltInOperator<which>, std::uint32_t slack) {
  if (source.size() != target.size())
    detail::refuse(communicator, "allreduce_ssp", "source and target differ in size");
  return allreduce_ssp(communicator, {.source = source.data(),
                                      .target = target.data(),
                                      .element_count = source.size(),
                                      .reduction = built_in_reduction(which, element_type_of<T>()),
                                      .slack = slack});
}

struct BroadcastArguments {
  void* buffer = nullptr;    // `bytes`: read on the root, written on the others, undefined until ok
  std::size_t bytes = 0;     // the same on every rank; 0 is allowed
  Rank root{0};              // the same on every rank
  double data_fraction = 1;  // share of the payload that is to arrive: over 0, at most 1; the same
                             // on every rank
  std::size_t element_bytes = 1;  // whole elements arrive; divides `bytes`
  Tree tree = Tree::automatic;    // the same on every rank; a payload along another tree is not
                                  // read in place
};

/// Copies the root's buffer into the buffers of all ranks; with a data_fraction, its first
/// ceil(fraction x elements) elements, and the rest of the buffers stays as it is
/// (Operation::coverage() says how many).
///
/// The payload goes along a tree over the nodes (k-nomial up to 256 bytes, else Fibonacci: Bar-Noy,
/// Kipnis 1992) and, inside each node, a flat or binomial tree over its ranks (nested as in SRM:
/// Tipparaju, Nieplocha, Panda 2003), or along the `tree` that is asked for.  It crosses between
/// two nodes once.
///
/// Where all ranks share a node, payloads of ContextOptions::single_copy_bytes (default: as
/// measured) to 2 MiB are not sent: all others read the root's buffer, and the root finishes when
/// they have.  If the kernel does not let them read a buffer (Status::transport_failed), set
/// single_copy_bytes to SIZE_MAX.
///
/// Where the buffers are one memory on all ranks of each node (Scope::node; segment.hpp, "Shared
/// target"), the payload is written there once and copied for no rank; nothing is read in place.
///
/// Otherwise the operation is one-way: the root finishes when it has handed over its messages.  It
/// can be two calls ahead of each rank to which it sends, and waits for that rank before the third
/// call, so no queue grows.  The memory of a destroyed operation is used again when its receivers
/// have read everything; the destructor of the communicator waits for them, at most 8 s.
///
/// The exception is zero copy (segment.hpp), by which broadcasts of 256 KiB and more over several
/// nodes go where the buffers of all ranks lie in segments or are registered.  The root cannot be
/// ahead there: it ends its call only when every rank to which it sends has entered its own, and
/// those of its node have read everything.
TUTTI_EXPORT Operation broadcast(Communicator& communicator, const BroadcastArguments& arguments);

/// Typed form.
template <Element T>
Operation broadcast(Communicator& communicator, std::span<T> buffer, Rank root) {
  return broadcast(communicator, {.buffer = buffer.data(),
                                  .bytes = buffer.size_bytes(),
                                  .root = root,
                                  .element_bytes = sizeof(T)});
}

struct ReduceArguments {
  const void* source = nullptr;   // element_count elements
  void* target = nullptr;         // element_count elements on the root; others need none.  It may
                                  // equal source
  std::size_t element_count = 0;  // elements, not bytes; the same on every rank; 0 is allowed
  Reduction reduction = {};       // the same on every rank
  Rank root{0};                   // the same on every rank
  Agreement agreement = Agreement::identical;  // the same on every rank; there is one result, so
                                               // `reproducible` alone promises more
  double data_fraction = 1;  // share of the elements: over 0, at most 1; the same on every rank
  double rank_fraction = 1;  // share of the ranks that contribute: over 0, at most 1; the same on
                             // every rank
  Tree tree = Tree::automatic;  // the same on every rank; binomial alone is reproducible
};

/// The root's target = source of rank 0 o source of rank 1 o ... .
///
/// Values go along the tree of broadcast(), in the other direction.  An operator that does not
/// commute is applied in rank order: along a tree to rank 0, and from there to the root, in one
/// more round; nodes are used if each holds consecutive ranks.  Agreement::reproducible, where
/// order may show in the bits, also goes along a tree to rank 0, but does not use nodes.  Its
/// expression is that of the canonical tree, so the bits are those of a reproducible allreduce().
///
/// The operation is one-way like broadcast(): a sender can be two calls ahead of its receiver. With
/// two ranks that share a node, and an operator that commutes, the root reads payloads of
/// ContextOptions::single_copy_bytes to 512 KiB from the sender's buffer, and the sender finishes
/// when the root has read it.  Where sources lie in segments (segment.hpp, "lanes_zero_copy"),
/// each rank waits in each call until others have read or received what it contributes.
///
/// Thresholds (M. A. Al Ahad et al., PAW-ATM 2018).  With a data_fraction, the first
/// ceil(fraction x element_count) elements are combined, and the rest of the target stays as it is.
/// With a rank_fraction, ceil(fraction x P) ranks contribute: the root and those that follow it,
/// modulo P, in rank order if need be; on the other ranks a call does nothing.
/// Operation::coverage() says how many elements and ranks.
TUTTI_EXPORT Operation reduce(Communicator& communicator, const ReduceArguments& arguments);

/// Typed form with a built-in operator.  On the root the target is as long as the source; on the
/// other ranks it may be empty.
template <Element T, BuiltIn which>
requires(defined_for(which, element_type_of<T>())) Operation
    reduce(Communicator& communicator, std::span<const T> source, std::span<T> target, Rank root,
           BuiltInOperator<which>, Agreement agreement = Agreement::identical) {
  if (communicator.rank() == root && source.size() != target.size())
    detail::refuse(communicator, "reduce", "source and target differ in size");
  return reduce(communicator, {.source = source.data(),
                               .target = target.data(),
                               .element_count = source.size(),
                               .reduction = built_in_reduction(which, element_type_of<T>()),
                               .root = root,
                               .agreement = agreement});
}

struct ScanArguments {
  const void* source = nullptr;   // element_count elements
  void* target = nullptr;         // element_count elements; may equal source.  exscan: rank 0 needs
                                  // none, and keeps what it has
  std::size_t element_count = 0;  // elements, not bytes; the same on every rank; 0 is allowed
  Reduction reduction = {};       // the same on every rank
};

/// target = source of rank 0 o ... o source of this rank: inclusive prefix.
///
/// Distances double (Hillis, Steele 1986): ceil(log2 P) rounds of at most one message, in rank
/// order whether or not the operator commutes.  Floating-point results have the same bits in every
/// run with the same number of ranks.  Where each node holds several consecutive ranks, and order
/// does not show in bits, the scan goes inside the nodes and over one rank of each.  The operation
/// is one-way like broadcast(): a sender can be two calls ahead of its receiver.
TUTTI_EXPORT Operation scan(Communicator& communicator, const ScanArguments& arguments);

/// target = source of rank 0 o ... o source of the rank before: exclusive prefix.
TUTTI_EXPORT Operation exscan(Communicator& communicator, const ScanArguments& arguments);

/// Typed forms with a built-in operator.  Source and target have equal sizes.
template <Element T, BuiltIn which>
requires(defined_for(which, element_type_of<T>())) Operation
    scan(Communicator& communicator, std::span<const T> source, std::span<T> target,
         BuiltInOperator<which>) {
  if (source.size() != target.size())
    detail::refuse(communicator, "scan", "source and target differ in size");
  return scan(communicator, {.source = source.data(),
                             .target = target.data(),
                             .element_count = source.size(),
                             .reduction = built_in_reduction(which, element_type_of<T>())});
}
template <Element T, BuiltIn which>
requires(defined_for(which, element_type_of<T>())) Operation
    exscan(Communicator& communicator, std::span<const T> source, std::span<T> target,
           BuiltInOperator<which>) {
  if (source.size() != target.size())
    detail::refuse(communicator, "exscan", "source and target differ in size");
  return exscan(communicator, {.source = source.data(),
                               .target = target.data(),
                               .element_count = source.size(),
                               .reduction = built_in_reduction(which, element_type_of<T>())});
}

}  // namespace tutti
