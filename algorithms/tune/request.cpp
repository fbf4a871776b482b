#include "tune/request.hpp"

#include <tutti/detail/enumerators.hpp>

namespace tutti::tune {

const char* name_of(Collective collective) noexcept {
  return detail::name_in<Collective::exscan>(
      {"barrier", "allreduce", "allreduce_ssp", "broadcast", "reduce", "reduce_scatter",
       "allgather", "alltoall", "gather", "scatter", "scan", "exscan"},
      collective);
}

bool order_shows_in_bits(const Reduction& reduction) noexcept {
  if (reduction.properties.exact) return false;
  if (reduction.element_type == ElementType::other) return true;
  return is_floating(reduction.element_type) && reduction.built_in != BuiltIn::min &&
         reduction.built_in != BuiltIn::max;
}

bool takes_any_order(const CollectiveRequest& request) noexcept {
  return request.reduction.properties.commutative &&
         (request.agreement == Agreement::relaxed || !order_shows_in_bits(request.reduction));
}

std::string text_of(const plan::PerRound& vector) {
  std::string text;
  for (const std::uint32_t entry : vector)
    text += (text.empty() ? "" : ",") + std::to_string(entry);
  return text;
}

}  // namespace tutti::tune
