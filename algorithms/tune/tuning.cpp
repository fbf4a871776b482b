#include "tune/tuning.hpp"

#include <tutti/detail/enumerators.hpp>

namespace tutti::tune {

const char* name_of(OperatorClass operators) noexcept {
  return detail::name_in<OperatorClass::ordered>(
      {"none", "idempotent", "exact", "rounding", "ordered"}, operators);
}

bool combines(Collective collective) noexcept {
  switch (collective) {
    case Collective::allreduce:
    case Collective::allreduce_ssp:
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::scan:
    case Collective::exscan:
      return true;
    case Collective::barrier:
    case Collective::broadcast:
    case Collective::allgather:
    case Collective::alltoall:
    case Collective::gather:
    case Collective::scatter:
      return false;
  }
  return false;
}

OperatorClass operator_class_of(const CollectiveRequest& request) noexcept {
  if (!combines(request.collective)) return OperatorClass::none;
  const OperatorProperties& properties = request.reduction.properties;
  if (!properties.commutative) return OperatorClass::ordered;
  if (properties.idempotent) return OperatorClass::idempotent;
  return order_shows_in_bits(request.reduction) ? OperatorClass::rounding : OperatorClass::exact;
}

}  // namespace tutti::tune
