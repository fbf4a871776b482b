// The messages of an operation, made ready once: what a put sends from where to where, by which
// fabric, and what an await looks at.
#pragma once

#include <span>

#include "runtime/card.hpp"
#include "runtime/operation.hpp"

namespace tutti::runtime {

/// Whether something comes into the step's slot.
inline bool is_arrival(const plan::Step& step) {
  return step.action == plan::Action::await || step.action == plan::Action::await_credit;
}

/// Whether a message between nodes, of a put or an arrival, is a line: both ends find the same, as
/// slots are laid out alike on all ranks.
bool travels_as_line(const Operation::Implementation& operation, const plan::Step& step);

/// Lets the messages along a connection be lines.  Throws Error if it has no room for one.
void use_lines(Operation::Implementation& operation, const verbs::Connection& connection);

/// Lets the operation's partials be elsewhere in each chunk, if that is possible and can pay.
void stage_partials(Operation::Implementation& operation);

/// `places`: by rank; those of partners are known.  May throw Error.
void prepare_messages(Operation::Implementation& operation, std::span<const Places> places);

/// Finds the messages that will stay in the memory of their senders in this node.  All ranks of the
/// node must have prepared their own messages before.  Neither throws nor allocates.
void find_messages_in_place(Operation::Implementation& operation, std::span<const Places> places);

}  // namespace tutti::runtime
