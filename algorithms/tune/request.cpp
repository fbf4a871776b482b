#include "tune/request.hpp"

namespace tutti::tune {

const char* name_of(Collective collective) noexcept {
  switch (collective) {
    case Collective::barrier:
      return "barrier";
    case Collective::allreduce:
      return "allreduce";
    case Collective::allreduce_ssp:
      return "allreduce_ssp";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::allgather:
      return "allgather";
    case Collective::alltoall:
      return "alltoall";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
    case Collective::scan:
      return "scan";
    case Collective::exscan:
      return "exscan";
  }
  return "?";
}

bool order_shows_in_bits(const Reduction& reduction) noexcept {
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
