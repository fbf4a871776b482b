// Timing a few schedules of an operation before it is made, and going on with the fastest, as V.
// End et al. do (INFOCOMP 2015, section V: 7 values of n, 15 calls each), if
// TUTTI_TUNING=first_call.
//
// It is part of making an operation, so all ranks are there.  Calls work on zeros in memory of
// their own, and no user's function is called.  What decides are numbers that every rank has: the
// time of the slowest rank, gathered out of band.
#pragma once

#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/operation.hpp>

#include "runtime/make_operation.hpp"
#include "tune/tuning.hpp"

namespace tutti::runtime {

/// So long after the first schedule was begun, by the slowest rank's clock, no further one is
/// begun; nor one that would end later if it took as long as the quickest so far.  Each is called
/// four times at least, and more often only while there is time.  So all of it takes longer by one
/// schedule at most (making it, and four calls), and by making the user's operation.  A schedule
/// that takes too long by its price is not tried.  In real time, if another schedule was faster
/// than the first one, which is that of prices, the first is timed again, and stays unless the
/// other is faster then, too.
inline constexpr Timeout first_call_time_max = std::chrono::milliseconds(50);
inline constexpr std::uint32_t first_call_batches = 3, first_call_calls_per_batch = 5;
inline constexpr std::size_t first_call_candidates_max = 12;
/// Larger payloads take so long that the model, which prices bytes well, decides.
inline constexpr std::size_t first_call_bytes_max = std::size_t{4} << 20;

/// From now on operations of the communicator go by the choice that is called so
/// (tune::Choice::name()), until this is called with an empty name.  For tuners.  All ranks call it
/// alike, between collective calls.  If there is no such choice for an operation, making it throws
/// Error{unsupported} on all ranks.  `split` is not affected.
void choose_only(Communicator& communicator, std::string name);

/// Whether first calls are to be made for a request, as far as can be told before it is complete;
/// alike on all ranks.
bool may_be_timed(const Communicator::Implementation& communicator,
                  const OperationRequest& request);

/// Whether a finding has another schedule that is faster than its winner, or slower by less than
/// calls have to differ: a few calls do not tell which one is the fastest.
bool is_close(const tune::Finding& finding);

/// Collective: makes the operation by the fastest schedule, at once if equal requests are known; by
/// price, if there is no room for that one in the arena or among receives.
/// Throws Error on all ranks.
std::unique_ptr<Operation::Implementation> make_by_first_call(
    Communicator::Implementation& communicator, const OperationRequest& request);

}  // namespace tutti::runtime
