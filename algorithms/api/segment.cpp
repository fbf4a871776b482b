#include "api/segment.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <tutti/detail/check.hpp>

#include "api/card.hpp"
#include "api/implementation.hpp"

namespace tutti {

Segment::Implementation::Implementation(Context::Implementation& owner, std::size_t wanted)
    : context(owner), bytes(wanted), memory(owner.fabric.arena().allocate(wanted)) {
  verbs::Arena& arena = context.fabric.arena();
  if (memory == nullptr)
    throw Error(ErrorCode::limit_exceeded,
                "allocate: a segment of " + std::to_string(bytes) +
                    " bytes: the largest gap of the arena is " +
                    std::to_string(arena.largest_gap()) + " of " + std::to_string(arena.size()) +
                    ": raise TUTTI_ARENA_BYTES, or destroy segments and operations");
  context.segments.push_back(this);
}

Segment::Implementation::~Implementation() {
  detail::check(users == 0, "operations are destroyed before the segments they use", users);
  std::erase(context.segments, this);
  if (!may_be_written) context.fabric.arena().release(memory);
}

namespace api {

Segment::Implementation* segment_with(const Context::Implementation& context, const void* buffer,
                                      std::size_t bytes) noexcept {
  const auto* const begin = static_cast<const std::byte*>(buffer);
  for (Segment::Implementation* const one : context.segments) {
    const std::byte* const end = one->memory + one->bytes;
    if (begin >= one->memory && begin <= end && bytes <= static_cast<std::size_t>(end - begin))
      return one;
  }
  return nullptr;
}

}  // namespace api

Segment::Segment(std::unique_ptr<Implementation> made) noexcept
    : implementation_(std::move(made)) {}
Segment::Segment(Segment&&) noexcept = default;
Segment& Segment::operator=(Segment&&) noexcept = default;
Segment::~Segment() = default;

std::byte* Segment::data() const noexcept {
  return implementation_->memory;
}

std::size_t Segment::size() const noexcept {
  return implementation_->bytes;
}

Segment Communicator::allocate(std::size_t bytes) {
  Implementation& ranks = *implementation_;
  ranks.require_usable();
  ranks.reap();
  std::optional<Error> error;
  std::unique_ptr<Segment::Implementation> made;
  try {
    made = std::make_unique<Segment::Implementation>(ranks.context, bytes);
  } catch (const Error& refused) {
    error = refused;
  }
  const api::Verdict verdict = api::Verdict::of(error);
  std::vector<api::Verdict> all(rank_count());
  ranks.gather(std::as_bytes(std::span(&verdict, 1)), std::as_writable_bytes(std::span(all)));
  api::agree<api::Verdict>(error, all);
  return Segment(std::move(made));
}

}  // namespace tutti
