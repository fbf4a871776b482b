#include "verbs/completion_words.hpp"

namespace tutti::verbs {
namespace {

// Statuses of transports and features that no connection here uses.
constexpr const char* unused = "is of a feature that is not used here";
constexpr const char* unused_hint = "a defect of the device or its driver: report it to its maker";

}  // namespace

CompletionWords words_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS:
      return {"IBV_WC_SUCCESS", "has no error", "none"};
    case IBV_WC_LOC_LEN_ERR:
      return {"IBV_WC_LOC_LEN_ERR", "a message was longer than its receive",
              "ranks with different versions of the library, or a defect: report it"};
    case IBV_WC_LOC_QP_OP_ERR:
      return {"IBV_WC_LOC_QP_OP_ERR", "the device here refuses the request",
              "a defect of the driver or of the library: report it"};
    case IBV_WC_LOC_EEC_OP_ERR:
      return {"IBV_WC_LOC_EEC_OP_ERR", unused, unused_hint};
    case IBV_WC_LOC_PROT_ERR:
      return {"IBV_WC_LOC_PROT_ERR", "what is sent to it is no registered memory",
              "a buffer was unmapped or given back while an operation uses it: keep the buffers of "
              "an operation until it is destroyed"};
    case IBV_WC_WR_FLUSH_ERR:
      return {"IBV_WC_WR_FLUSH_ERR", "the connection ended before the request",
              "a consequence of an earlier error: the other rank may say which"};
    case IBV_WC_MW_BIND_ERR:
      return {"IBV_WC_MW_BIND_ERR", unused, unused_hint};
    case IBV_WC_BAD_RESP_ERR:
      return {"IBV_WC_BAD_RESP_ERR", "its device gave no valid answer",
              "look at firmware, cables and counters of errors of both ports"};
    case IBV_WC_LOC_ACCESS_ERR:
      return {"IBV_WC_LOC_ACCESS_ERR", "it wrote where this rank does not allow it",
              "a buffer was unmapped or given back here while its operation exists"};
    case IBV_WC_REM_INV_REQ_ERR:
      return {"IBV_WC_REM_INV_REQ_ERR", "its device calls the request invalid",
              "ranks with different versions of the library, or a defect: report it"};
    case IBV_WC_REM_ACCESS_ERR:
      return {"IBV_WC_REM_ACCESS_ERR", "it does not allow the access to its memory",
              "a buffer or segment was unmapped or given back there while its operation exists"};
    case IBV_WC_REM_OP_ERR:
      return {"IBV_WC_REM_OP_ERR", "its device could not finish the request",
              "a buffer was unmapped there while its operation exists; or look at the kernel's log "
              "on its host"};
    case IBV_WC_RETRY_EXC_ERR:
      return {"IBV_WC_RETRY_EXC_ERR", "does not answer (transport retries exceeded)",
              "its process or host is gone, or a cable, port or switch on the way is down"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {"IBV_WC_RNR_RETRY_EXC_ERR", "had no receive for a message, again and again",
              "ranks that call an operation differently often, or a defect: report it"};
    case IBV_WC_LOC_RDD_VIOL_ERR:
      return {"IBV_WC_LOC_RDD_VIOL_ERR", unused, unused_hint};
    case IBV_WC_REM_INV_RD_REQ_ERR:
      return {"IBV_WC_REM_INV_RD_REQ_ERR", unused, unused_hint};
    case IBV_WC_REM_ABORT_ERR:
      return {"IBV_WC_REM_ABORT_ERR", "its device has given up the request",
              "look at the kernel's log on its host"};
    case IBV_WC_INV_EECN_ERR:
      return {"IBV_WC_INV_EECN_ERR", unused, unused_hint};
    case IBV_WC_INV_EEC_STATE_ERR:
      return {"IBV_WC_INV_EEC_STATE_ERR", unused, unused_hint};
    case IBV_WC_FATAL_ERR:
      return {"IBV_WC_FATAL_ERR", "the device here has failed",
              "look at the kernel's log of this host; the device may have to be reset"};
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {"IBV_WC_RESP_TIMEOUT_ERR", "its answer came too late",
              "look at its host, and at counters of errors of both ports"};
    case IBV_WC_GENERAL_ERR:
      return {"IBV_WC_GENERAL_ERR", "the device here reports an error of its own",
              "its maker knows the vendor error; look at the kernel's log of this host"};
    case IBV_WC_TM_ERR:
      return {"IBV_WC_TM_ERR", unused, unused_hint};
    case IBV_WC_TM_RNDV_INCOMPLETE:
      return {"IBV_WC_TM_RNDV_INCOMPLETE", unused, unused_hint};
  }
  return {"an unknown status", "a completion has an unknown error",
          "the device is newer than the library: report the number"};
}

}  // namespace tutti::verbs
