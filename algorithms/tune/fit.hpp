// From times that probes took to the parameters of a machine.
//
// Each probe takes a time that is a line in the number of messages or bytes (loggp.hpp), so that
// slopes and intercepts are the parameters.  The probes themselves are microbench/network_probes.
// A sample is the least mean of the blocks of one pass, so rare delays are not in it.  Noise only
// adds time: the least sample of a probe with its bytes and messages is what the probe takes, and
// the distances of the others say how far off the least may be.  If in half of the cells the least
// is over a tenth below the middle one, the machine is unsteady, for example because a host moves
// CPUs; then the middle sample counts, as it does in a race.  An interval contains at least what
// each eighth of the passes would have told alone; with fewer than forty passes, there are fewer
// parts, of at least five each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tune/machine.hpp"

namespace tutti::tune {

/// What the time of a sample is.  b: bytes of a message, k: messages, p = max(g, b G); o, L and so
/// on are those between nodes, or inside a node where the name says so.  On a network that keeps to
/// LogGP these formulas are exact, to the rounding of single messages.
enum class Probe : std::uint8_t {
  one_way,         // half a round trip of one message: o + L + b G + o_r
  stream,          // from the first of k messages, each over a queue pair of its own, to the answer
                   // of 8 bytes to the last one.  The receiver's program looks at the last one
                   // alone, so that a port that is faster than a program shows:
                   // (o + L + b G + o_r) + (k - 1) max(p, g of a rank) + (o + L + 8 G + o_r)
  posting,         // what posting k messages takes their sender: k times the g of a rank
  waiting,         // what a program takes to see k messages of which all have come: k o_r
  combine,         // what combining b bytes takes, without messages: gamma
  shared_port,     // stream, by all ranks of a node from one instant on, each to a rank of its own
                   // of another node; k is what all R of them send, and the last answer counts:
                   // (o + L + b G + o_r) + t + (o + L + 8 G + o_r), where t is (k - 1) p, or
                   // (k / R - 1) times the g of a rank + (R - 1) p if R p is less than that g
  incast,          // from a rank's asking k others, by 8 bytes each, until its program has seen the
                   // answers, of b bytes, b >= 8, of all:
                   // (o + L + 8 G + o_r) + (o + L + b G + o_r) + (k - 1) max(p, o_r, g of a rank),
                   // or k (g of a rank + o_r) if that is longer
  inside_one_way,  // half a round trip of one message in a node's memory, until its receiver has
                   // copied it out of there: o + b G + L + o_r
  inside_store,  // what storing k messages of b bytes takes their sender: k (o + b G), or less, as
                 // in G there is also what a receiver waits for bytes in another CPU's cache
  inside_take,   // what a program takes to see k messages that are visible: k o_r
  inside_read,   // what reading b bytes in another rank's memory takes, by its process
};
const char* name_of(Probe probe) noexcept;

struct Sample {
  Probe probe = Probe::one_way;
  std::uint64_t bytes = 0;     // b
  std::uint32_t messages = 1;  // k
  plan::Picoseconds time = 0;  // the least mean of the blocks of a batch
  std::uint32_t ranks = 1;     // that send at once (shared_port), each to a rank of its own
  friend bool operator==(const Sample&, const Sample&) = default;
};

struct Fit {
  Machine machine = {};  // named "measured"
  /// Residuals of the samples, in their order: measured less what the machine says.
  std::vector<plan::Picoseconds> residuals = {};
  /// Sentences: parameters that could not be told, which are those of `fallback`; breaks; intervals
  /// of too few samples, which may be too narrow; samples that were left out.
  std::vector<std::string> remarks = {};
};

/// A line is told from samples of two lengths or more, better of six.  Its intervals need three
/// samples of each length, better five: a single one does not say how much noise is in it.
///   o + L    one_way without bytes, less o_r
///   G        one_way by bytes
///   o_r      waiting by messages
///   g        shared_port by messages of the fewest bytes, or stream if that was not measured.  An
///            upper limit: ranks that send as fast as they can may leave the port free
///   g of a rank   posting by messages
///   gamma    combine by bytes
///   inside   inside_one_way by bytes: G, and without bytes, less o and o_r: L.  inside_store
///            without bytes: o.  inside_take by messages: o_r.  inside_read by bytes
///   fan_max  the most senders up to which incast is at most a tenth above what it is with the
///            fewest and max(p, o_r, g of a rank) for each further one; 0 if it is so as far as was
///            measured
/// Lines, their breaks and intervals are those of robust_line.hpp, from a generator of `seed`.
/// Pure.
///
/// Samples of negative time or of more than 1000 s, without messages or of more than 65536, of more
/// than 4 GiB a message or 32 GiB in all, of no ranks or more than messages are left out.  What is
/// more than a tuning file may say is the most that it may, and remarked on.
Fit fit(const std::vector<Sample>& samples, const Machine& fallback, std::uint64_t seed);

}  // namespace tutti::tune
