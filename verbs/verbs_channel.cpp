#include "verbs/verbs_channel.hpp"

#include <endian.h>

#include <algorithm>
#include <tutti/detail/check.hpp>

namespace tutti::verbs {

void VerbsChannel::prepare(const Connection& connection, std::uint32_t parity, std::size_t put,
                           const NotifiedWrite& write) {
  PreparedPut& prepared = put_at(parity, put);
  prepared.connection = connection.index;
  prepared.request = connection.request_of(write, prepared.piece);
  prepared.request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  prepared.request.imm_data = htobe32(write.notification.encoded());
}

void VerbsChannel::prepare_line(const Connection& connection, std::uint32_t parity, std::size_t put,
                                const LineWrite& write) {
  detail::check(write.bytes <= Line::payload_bytes_max, "the payload of a line fits", write.bytes,
                Line::payload_bytes_max);
  detail::check(write.remote_address % alignof(Line) == 0, "a line is aligned",
                write.remote_address, alignof(Line));
  PreparedPut& prepared = put_at(parity, put);
  OutgoingLine& line = lines_.emplace_back();
  line.line.number = line.numbers_from = write.numbers_from;
  line.local = write.local;
  line.bytes = write.bytes;
  // Without a payload the word alone is sent: there is less to copy.
  const std::size_t skipped = write.bytes > 0 ? 0 : offsetof(Line, number);
  prepared.connection = connection.index;
  prepared.line = &line;
  prepared.piece = {.addr = reinterpret_cast<std::uint64_t>(&line.line) + skipped,
                    .length = static_cast<std::uint32_t>(sizeof(Line) - skipped),
                    .lkey = 0};
  prepared.request = {};
  prepared.request.wr_id =
      CompletionTag{connection.index, connection.sends.signal_every()}.encoded();
  prepared.request.sg_list = &prepared.piece;
  prepared.request.num_sge = 1;
  prepared.request.opcode = IBV_WR_RDMA_WRITE;
  prepared.request.send_flags = IBV_SEND_INLINE;
  prepared.request.wr.rdma = {.remote_addr = write.remote_address + skipped,
                              .rkey = write.remote_key};
}

void VerbsChannel::await_sent(std::size_t put) {
  for (std::uint32_t parity = 0; parity < 2; ++parity) put_at(parity, put).is_awaited = true;
  const std::uint32_t connection = put_at(0, put).connection;
  assert(put_at(1, put).connection == connection);
  if (std::none_of(sent_.begin(), sent_.end(),
                   [&](const Sent& one) { return one.connection == connection; }))
    sent_.push_back({.connection = connection, .posted = 0});
}

void VerbsChannel::assign(std::size_t put, const Connection& connection) noexcept {
  for (std::uint32_t parity = 0; parity < 2; ++parity)
    put_at(parity, put).connection = connection.index;
}

void VerbsChannel::await_lines(std::uint32_t parity, std::uint32_t slot, std::byte* line,
                               const Connection& connection) {
  const auto address = reinterpret_cast<std::uintptr_t>(line);
  detail::check(address % alignof(Line) == 0, "a line is aligned", address, alignof(Line));
  Arrival& arrival = arrivals_[place_of(parity, slot)];
  arrival.word = reinterpret_cast<std::uint64_t*>(line + offsetof(Line, number));
  arrival.taken = numbers_from_;
  arrival.connection = connection.index;
  // Relaxed: no peer knows of the line yet.
  std::atomic_ref(*arrival.word).store(numbers_from_, std::memory_order_relaxed);
}

void VerbsChannel::forget_messages() noexcept {
  for (Arrival& arrival : arrivals_) {
    const bool is_line = arrival.connection != no_connection;
    arrival.raised = 0;
    arrival.taken = is_line ? numbers_from_ : 0;
    // Relaxed: peers send again only when an exchange has told them that this is done.
    if (is_line) std::atomic_ref(*arrival.word).store(numbers_from_, std::memory_order_relaxed);
  }
  for (OutgoingLine& line : lines_) line.line.number = line.numbers_from;
  for (Received& one : received_) one.count = 0;
  for (Sent& one : sent_) one.posted = 0;
}

void VerbsChannel::republish(const detail::RepublishedWords& words) {
  detail::check(std::uint64_t{words.copies} * words.count <= Immediate::slots_max,
                "a slot has a number of 15 bits", words.copies, words.count);
  words_ = words;
  slot_count_ = 0;
  arrivals_.clear();
}

void VerbsChannel::reserve_receive(Connection& connection) {
  connection.reserve_receive();
  reserved_.push_back(connection.index);
}

}  // namespace tutti::verbs
