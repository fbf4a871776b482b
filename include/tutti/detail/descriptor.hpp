// Owners of one file descriptor and of one mapping, and a word to the kernel about mapped pages.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti::detail {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

class Mapping {
 public:
  Mapping() = default;
  /// Takes over what mmap returned; MAP_FAILED makes an empty owner.
  Mapping(void* address, std::size_t bytes) noexcept
      : address_(address == MAP_FAILED ? nullptr : address), bytes_(address_ ? bytes : 0) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (address_) ::munmap(address_, bytes_);
  }

  std::byte* data() const noexcept { return static_cast<std::byte*>(address_); }
  std::size_t size() const noexcept { return bytes_; }
  std::span<std::byte> bytes() const noexcept { return {data(), bytes_}; }
  explicit operator bool() const noexcept { return address_ != nullptr; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Enters pages of a shared mapping, which exist, into the page tables of this process, so that the
/// first access to each does not go by way of the kernel.  A hint: kernels before 5.14 do nothing.
inline void enter_pages(const std::byte* begin, std::size_t bytes) noexcept {
  constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, which older headers lack
  const auto page = static_cast<std::uintptr_t>(::getpagesize());
  const auto first = reinterpret_cast<std::uintptr_t>(begin) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(begin) + bytes;
  if (bytes > 0) (void)::madvise(reinterpret_cast<void*>(first), end - first, populate_write);
}

}  // namespace tutti::detail
