#include "runtime/user_operator.hpp"

#include <cstdint>
#include <cstdio>
#include <tutti/detail/check.hpp>
#include <tutti/exact_sum.hpp>
#include <utility>

namespace tutti {
namespace {

/// The operator that this thread is calling.
thread_local runtime::UserOperator* called_now = nullptr;

template <CombineFunction Reduction::*function>
void guarded(const void* incoming, void* partial, std::size_t count, void* context) noexcept {
  auto& own = *static_cast<runtime::UserOperator*>(context);
  if (own.has_failed) return;
  called_now = &own;
  (own.reduction.*function)(incoming, partial, count, own.reduction.context);
  called_now = nullptr;
}

}  // namespace

void fail(void* context, const char* text) noexcept {
  runtime::UserOperator* const own = called_now;
  detail::check(own != nullptr, "fail() is called by a user's operator that an operation calls");
  detail::check(own->reduction.context == context, "fail() gets the context of its operator",
                reinterpret_cast<std::uintptr_t>(context),
                reinterpret_cast<std::uintptr_t>(own->reduction.context));
  if (own->has_failed) return;
  own->has_failed = true;
  std::snprintf(own->text.data(), own->text.size(), "%s", text != nullptr ? text : "");
}

namespace runtime {

bool UserOperator::may_fail(const Reduction& reduction) noexcept {
  return reduction.combine != nullptr && reduction.built_in == BuiltIn::none &&
         reduction.combine != exact_addition().combine;
}

Reduction UserOperator::guarded() noexcept {
  Reduction called = reduction;
  called.combine = tutti::guarded<&Reduction::combine>;
  if (reduction.inverse != nullptr) called.inverse = tutti::guarded<&Reduction::inverse>;
  called.context = this;
  return called;
}

}  // namespace runtime
}  // namespace tutti
