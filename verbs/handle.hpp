// The owner of one verbs object.  The deleter calls the driver that made the object; if the driver
// refuses, a member of an owner is declared in the wrong order.
#pragma once

#include <cassert>
#include <cstdio>
#include <memory>

#include "verbs/driver.hpp"

namespace tutti::verbs {

template <class T, int (*Driver::*destroy)(T*)>
struct Destroy {
  const Driver* driver = nullptr;

  void operator()(T* object) const noexcept {
    assert(driver != nullptr);
    if (const int error = (driver->*destroy)(object); error != 0)
      std::fprintf(stderr, "tutti: a %s object could not be destroyed (error %d)\n", driver->name,
                   error);
  }
};

template <class T, int (*Driver::*destroy)(T*)>
using Handle = std::unique_ptr<T, Destroy<T, destroy>>;

using DeviceHandle = Handle<ibv_context, &Driver::close_device>;
using ProtectionDomainHandle = Handle<ibv_pd, &Driver::dealloc_pd>;
using RegionHandle = Handle<ibv_mr, &Driver::dereg_mr>;
using CompletionChannelHandle = Handle<ibv_comp_channel, &Driver::destroy_comp_channel>;
using CompletionQueueHandle = Handle<ibv_cq, &Driver::destroy_cq>;
using QueuePairHandle = Handle<ibv_qp, &Driver::destroy_qp>;

}  // namespace tutti::verbs
