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
/// Collective like the factory in whose place it is called: every rank throws Error, this one
/// `why`, the others who said so.
[[noreturn]] TUTTI_EXPORT void refuse(Communicator& communicator, const char* collective,
                                      const char* why);
}  // namespace detail

struct BarrierArguments {
  std::vector<std::uint32_t> per_round =
      {};  // messages per round; empty = context's, then the rule
  Algorithm algorithm = Algorithm::automatic;  // or dissemination
  Across across = Across::automatic;           // lanes are leaders here: no payload to be cut
};

/// No rank finishes before every rank has started.  n-way dissemination: ceil(log_{n+1} P) rounds,
/// over all ranks, or over one of each node with a round before it and one after it in shared
/// memory (V. Tipparaju, J. Nieplocha, D. Panda, IPDPS 2003); in nodes of many ranks by their
/// domains first (ContextOptions::domains_above).
TUTTI_EXPORT Operation barrier(Communicator& communicator, const BarrierArguments& arguments = {});

struct AllreduceArguments {       // raw form
  const void* source = nullptr;   // element_count elements; may equal target (in place)
  void* target = nullptr;         // element_count elements; contents undefined until ok
  std::size_t element_count = 0;  // elements, not bytes; the same on every rank; 0 is allowed
  Reduction reduction = {};       // the same on every rank
  Agreement agreement = Agreement::identical;  // what is offered for which: see allreduce()
  std::vector<std::uint32_t> per_round = {};  // messages per round, the same on every rank; empty =
                                              // the context's, then the rule
  Algorithm algorithm = Algorithm::automatic;  // the same on every rank
  Across across = Across::automatic;           // the same on every rank; if leader or lanes,
                                               // algorithm and per_round are those across nodes
};

/// target = source of rank 0 o source of rank 1 o ... , on every rank.
///
/// From 64 KiB on, among up to 32 ranks, each rank folds one part of the payload for all, along the
/// canonical tree (see below), where that is expected to be cheaper than what follows: two rounds
/// of P - 1 messages.  That keeps every promise.
///
/// An operator that is not commutative is applied in rank order, at every agreement.  What order
/// cannot change (integers, min, max, and/or/xor) and Agreement::relaxed take n-way dissemination
/// for any number of ranks: ceil(log_{n+1} P) rounds of at most n messages of element_count
/// elements (twice that where an operator that is not commutative has to carry both sides of the
/// seam). Messages of a round are combined in the order in which they arrive if the operator
/// commutes, so the last bits of `relaxed` results may differ between ranks and between calls.
///
/// Order may show in the bits of everything else: sums and products of floating-point elements, and
/// users' operators on floating-point elements or on elements of no known type
/// (ElementType::other).  A user's operator has to give equal bits for equal operands; on integer
/// elements it is taken to be exactly associative.
///
/// Agreement::identical: all ranks evaluate one expression, in rank order (in that of the ring for
/// Algorithm::ring).  Where the number of
/// ranks is a product of small factors (2 .. 8, 12, 16, 24, 32, 48, 64, 96, ...), by recursive
/// multiplying, in as many rounds.  Elsewhere as for `reproducible`, in as many rounds, too, while
/// payloads are small; else by recursive multiplying, with a round before and one after it in which
/// neighbours fold.  per_round must cover the ranks in any case; recursive multiplying takes it as
/// it is if the product of (n+1) is their number, else its entries are upper bounds of the rounds,
/// and those of the fold are in addition, with at most the largest entry.
///
/// Agreement::reproducible: the expression is that of one tree over the ranks, in rank order, which
/// depends on their number alone: lower half (the largest power of two below the count) o upper
/// half, and so on.  Values travel as blocks of that tree, as contributions to be folded by
/// everybody, or, if large, in P parts of which each rank folds one; what costs least is taken.
///
/// Where ranks share nodes, `across` decides whether the ranks of a node are combined first, and
/// told last, through shared memory; it then depends on the shape of the nodes which of the equally
/// right results `identical` and `relaxed` give.  Operators that do not commute allow it where each
/// node's ranks follow each other, `reproducible` floating point does not.
///
/// `algorithm` takes a schedule by name.  Error{unsupported} if it cannot keep the promise, with
/// those that can; Error{invalid_argument} if it does not exist for these ranks with that n, with
/// the nearest n that works.  Ranks that round differently (rounding mode, FTZ, DAZ) get
/// Error{mismatch} unless relaxed is asked for, at CheckLevel::collective.
///
/// Where every rank is a node of its own and has its buffers in registered memory (segment.hpp),
/// payloads from 64 KiB on, in parts or by the ring, are sent from the source and land in the
/// target.
///
/// Two ranks that share a node read each other's buffers (process_vm_readv) only if
/// ContextOptions::single_copy_bytes is given, for payloads of 64 times as many bytes and more,
/// where the operator is built-in and commutes or, for users' operators, its order does not show or
/// relaxed is asked for.
///
/// Algorithm::shared_ring: start() leaves the contribution in memory that the ranks of the node
/// share, and from then on whichever of them is in test() or wait() does the work of the node: a
/// rank that computes, or is stopped, after start() holds up nobody else in that call (but where
/// the software device has to move data by TUTTI_SOFT_TRANSPORT=bounce, or, stopped in
/// the middle of test() or wait(), it may have a chunk of the payload in its hands).  That is where
/// the device places writes in order, as the software device does.  Elsewhere
/// (SharedNotifications::republished) the ranks of a node to which ranks of the node before send,
/// as many as those are, have to be in test() or wait(), of any operation, for the others to get
/// on; describe() names them.  It holds the payloads of all ranks of a node, twice, in the arena of
/// the first one.
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

/// Stale-synchronous allreduce (M. A. Al Ahad et al., PAW-ATM 2018, III.A): call t brings exactly
/// one contribution of every rank, each from a call t - slack .. t, and the own one from call t.  A
/// rank that is late holds up others only when they would be more than slack calls ahead of what
/// they have of it.  Operation::staleness() tells the age of the oldest contribution after ok.
///
/// Results of different ranks differ where slack > 0; with slack 0 it is a relaxed allreduce.  By
/// two-partial dissemination over all ranks, in 2 slack + 2 copies of its slots and partials, for
/// whole payloads, so the arena has to hold that, and a queue pair as many receives for each
/// message: Error{limit_exceeded}.  All ranks have to start it equally often, and to meet
/// (synchronize()) before any of them destroys the communicator: a rank that is still behind would
/// otherwise miss one that has left more than 8 s ago.  Error{unsupported} where the operator does
/// not commute.
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
  double data_fraction = 1;  // of the payload that is to arrive: over 0, at most 1; the same on
                             // every rank
  std::size_t element_bytes = 1;  // whole elements arrive; divides `bytes`
  Tree tree = Tree::automatic;    // the same on every rank; others are not read in place
};

/// The root's buffer gets into the buffers of all ranks; with a data_fraction, its first
/// ceil(fraction x elements) elements, and the rest of the buffers stays as it is
/// (Operation::coverage() tells how many).
///
/// Along a tree over the nodes (k-nomial up to 256 bytes, else Fibonacci: Bar-Noy, Kipnis 1992)
/// and, inside each, a flat or binomial one over its ranks (nested as in SRM: Tipparaju, Nieplocha,
/// Panda 2003), or along the `tree` that is asked for; a payload crosses between two nodes once.
///
/// Where all ranks share a node, payloads of ContextOptions::single_copy_bytes (default: as
/// measured) to 2 MiB are not sent: all others read the root's buffer, and the root finishes when
/// they have.  A buffer that the kernel does not let them read (Status::transport_failed) needs
/// SIZE_MAX there.
///
/// Otherwise one-way: the root finishes when it has handed over its messages.  It can be two calls
/// ahead of a rank that it tells, and waits for that one before the third; nothing grows.  The
/// memory of a destroyed operation is used again when the ranks that it told have read everything;
/// for them the communicator waits at its end, at most 8 s.
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
  void* target = nullptr;         // of the root; others need none.  May equal source
  std::size_t element_count = 0;  // elements, not bytes; the same on every rank; 0 is allowed
  Reduction reduction = {};       // the same on every rank
  Rank root{0};                   // the same on every rank
  Agreement agreement = Agreement::identical;  // one result: `reproducible` alone promises more
  double data_fraction = 1;     // of the elements: over 0, at most 1; the same on every rank
  double rank_fraction = 1;     // of the ranks that are to contribute: the same
  Tree tree = Tree::automatic;  // the same on every rank; binomial alone is reproducible
};

/// The root's target = source of rank 0 o source of rank 1 o ... .
///
/// Along the tree of broadcast(), the other way.  An operator that is not commutative is applied in
/// rank order: along a tree from rank 0, and from there to the root (one round more; nodes are
/// regarded if each holds consecutive ranks).  Agreement::reproducible, where order may show in the
/// bits: the same without regard to nodes, which is the expression of the canonical tree, so that
/// the bits are those of a reproducible allreduce().
///
/// One-way like broadcast(): whoever sends can be two calls ahead of whoever receives.  Of two
/// ranks that share a node, payloads of ContextOptions::single_copy_bytes to 512 KiB are read from
/// the sender's buffer by the root, if the operator commutes, and the sender finishes when they
/// have been.
///
/// Thresholds (M. A. Al Ahad et al., PAW-ATM 2018): with a data_fraction the first
/// ceil(fraction x element_count) elements are combined, and the rest of the target stays as it is;
/// with a rank_fraction the sources of ceil(fraction x P) ranks, the root and those that follow it,
/// modulo P, in rank order if need be; for the others a call is nothing.  Operation::coverage()
/// tells how many of both.
TUTTI_EXPORT Operation reduce(Communicator& communicator, const ReduceArguments& arguments);

/// Typed form with a built-in operator.  The target of the root is as long as the source; that of
/// the others may be empty.
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
/// By doubling distances (Hillis, Steele 1986): ceil(log2 P) rounds of at most one message, in rank
/// order whether or not the operator commutes.  Floating-point results have the same bits in every
/// run with as many ranks.  Where nodes of several ranks follow each other and order does not show
/// in bits, inside the nodes and over one rank of each.  One-way like broadcast(): whoever sends
/// can be two calls ahead.
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
