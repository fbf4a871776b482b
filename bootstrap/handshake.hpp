// How a rank and the hub show each other that they know the secret, without sending it: each proves
// it by an HMAC over what both have said before.  The hello has the rank, the number of ranks and
// random bytes of the rank; the challenge has random bytes of the job and of this connection.  So a
// proof is worth nothing for another rank, job or connection, and what was recorded cannot be
// replayed.  The rank proves first: a stranger gets nothing from the hub by which it could try
// secrets out.  Cf. M. Bellare, P. Rogaway, Entity authentication and key distribution (CRYPTO
// '93), whose MAP1 this is, with both directions in different words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "bootstrap/hmac.hpp"
#include "bootstrap/wire.hpp"

namespace tutti::bootstrap {

enum class Prover : std::uint8_t { rank, hub };

/// Depends on every byte of both.
Digest prove(Prover prover, std::string_view secret, const wire::Hello& hello,
             const wire::Challenge& challenge) noexcept;

/// Fills it from getrandom(); false: the system has none.
bool fill_random(std::span<std::uint8_t> bytes) noexcept;

}  // namespace tutti::bootstrap
