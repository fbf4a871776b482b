// How often operator new was called in this program; links with allocations.cpp.
#pragma once

#include <cstdint>

namespace tutti::test {

std::uint64_t allocation_count() noexcept;

}  // namespace tutti::test
