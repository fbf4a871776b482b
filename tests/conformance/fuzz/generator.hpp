// Random commands, most of them sensible, so that connections come about and carry messages, and
// some of them wrong in one way or another.  The same random numbers and the same model give the
// same commands.
#pragma once

#include <cstdint>
#include <random>

#include "model.hpp"
#include "party.hpp"

namespace tutti::conformance::fuzz {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  Command next(const Model& model);
  /// True `percent` times of 100.
  bool chance(unsigned percent) { return below(100) < percent; }
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }

 private:
  bool fill(const Model& model, Command& command);
  bool fill_create_pair(const Model& model, Command& command);
  void fill_create_shared(Command& command);
  void fill_modify(const Model& model, const Pair& pair, Command& command);
  void fill_values(const Model& model, const Pair& pair, Command& command);
  void fill_sends(const Model& model, const Pair& pair, Command& command);
  void fill_datagrams(const Model& model, Command& command);
  void fill_remote(const Model& model, const Pair& pair, Work& work);
  void fill_receives(const Side& side, std::uint32_t domain, std::uint32_t pieces_max_here,
                     Command& command);
  bool fill_region(const Side& side, Command& command);
  void fill_pieces(const Side& side, std::uint32_t domain, bool in_second_half, bool is_sink,
                   Work& work);
  Piece piece(const Side& side, std::uint32_t domain, bool in_second_half);
  bool wants(const Model& model, const Pair& pair);
  /// One of a hundred: most requests should go well.
  bool errs() { return chance(1); }
  template <class Objects>
  bool pick(const Objects& objects, bool alive, std::uint32_t& slot);

  std::mt19937_64 random_;
  std::uint64_t last_id_ = 0;
};

}  // namespace tutti::conformance::fuzz
