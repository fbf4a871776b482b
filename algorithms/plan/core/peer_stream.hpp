// A stream is a sequence of messages from one rank to another, each with a different part of the
// payload, and of the answers that acknowledge them window by window (windows.hpp).  Each end has
// its own half of the stream, a class that writes the puts, the awaits, the answers and the waits
// for answers as steps of that rank's plan.
//
//   sender      put 0 .. 3   put 4 .. 7   put 8 .. 11   await answer 0   put 12 .. 15
//   receiver    await 0 .. 3, put answer 0              await 4 .. 7, put answer 1
//
// An answer is a message without payload about the last part that it acknowledges.  Its slot, at
// the sender, is one of the plan's lines: the stream has answer_count() of them from a first one
// on, or the line of that part where every part has one.  A stream without lines has no answers: it
// is so short that its receiver has receives for all of it.
//
// Nobody waits in a circle if what a rank awaits before its i-th message was put at an earlier
// point of the same schedule.  Where all ranks run the same steps, a rank therefore takes, and so
// answers, OutgoingStream::to_be_taken() incoming messages before it waits for the answer to its
// own.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/core/plan.hpp"
#include "plan/core/steps.hpp"
#include "plan/core/windows.hpp"

namespace tutti::plan {

/// The lines of a stream's answers.
struct AnswerLines {
  std::uint32_t first = 0;
  bool by_part = false;  // line `first` + p acknowledges part p; if not, they are used in turn

  std::uint16_t line(std::uint32_t answer, std::uint16_t part) const {
    const std::uint32_t slot = first + (by_part ? part : answer);
    assert(slot <= UINT16_MAX);
    return static_cast<std::uint16_t>(slot);
  }
};

/// The sender's half.
class OutgoingStream {
 public:
  OutgoingStream(StepWriter& steps, Rank peer, std::optional<AnswerLines> answers)
      : steps_(&steps), peer_(peer), answers_(answers) {}

  Rank peer() const { return peer_; }

  std::uint32_t count() const { return static_cast<std::uint32_t>(parts_.size()); }
  /// Messages that the peer has to have taken before the next one is sent.
  std::uint32_t to_be_taken() const { return answers_ ? taken_before(count()) : 0; }

  /// Writes the wait for the answer, if any, that allows the next message.  That message carries
  /// `part`, and the steps written from here on are about `part`.
  void begin(std::uint16_t part) {
    assert(!begun_);
    if (const std::uint32_t taken = to_be_taken(); taken > 0) {
      const std::uint16_t acknowledged = parts_[taken - 1];
      steps_->begin_part(acknowledged);
      steps_->await(peer_, answers_->line(answer_before(count()), acknowledged), 0);
    }
    steps_->begin_part(part);
    parts_.push_back(part);
    begun_ = true;
  }

  /// Sends the message.  `forwards` says that its block came from another rank.
  void put(std::uint16_t slot, Register from, bool forwards = false) {
    assert(begun_);
    begun_ = false;
    steps_->put(peer_, slot, 1, from, forwards);
  }

 private:
  StepWriter* steps_;
  Rank peer_;
  std::optional<AnswerLines> answers_;
  std::vector<std::uint16_t> parts_;  // of the messages so far
  bool begun_ = false;
};

/// The receiver's half.
class IncomingStream {
 public:
  /// `count`: messages that will come.
  IncomingStream(StepWriter& steps, Rank peer, std::optional<AnswerLines> answers,
                 std::uint32_t count)
      : steps_(&steps), peer_(peer), answers_(answers), count_(count) {}

  Rank peer() const { return peer_; }
  std::uint32_t count() const { return count_; }
  std::uint32_t taken() const { return taken_; }

  /// Awaits the next message, about `part`.
  void await(std::uint16_t slot, std::uint16_t part) {
    assert(taken_ < count_ && !is_open_);
    steps_->begin_part(part);
    steps_->await(peer_, slot, 1);
    part_ = part;
    is_open_ = true;
  }

  /// To be called after the message was read.  Writes the answer if the message ends a window whose
  /// answer the sender waits for.
  void finish() {
    assert(is_open_);
    is_open_ = false;
    if (answers_ && is_answered(taken_, count_))
      steps_->put(peer_, answers_->line(taken_ / window, part_), 0);
    ++taken_;
  }

 private:
  StepWriter* steps_;
  Rank peer_;
  std::optional<AnswerLines> answers_;
  std::uint32_t count_;
  std::uint32_t taken_ = 0;
  std::uint16_t part_ = 0;
  bool is_open_ = false;
};

}  // namespace tutti::plan
