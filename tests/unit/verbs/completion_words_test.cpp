// Promise: every completion status has a name, a meaning and a hint of its own.
#include "verbs/completion_words.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti::verbs {
namespace {

struct Known {
  ibv_wc_status status;
  const char* name;
  const char* in_meaning;  // these have to be told apart
  const char* in_hint;
};

class CompletionStatuses : public testing::TestWithParam<Known> {};

TEST_P(CompletionStatuses, have_words) {
  const Known& known = GetParam();
  const CompletionWords words = words_of(known.status);
  EXPECT_STREQ(words.name, known.name);
  EXPECT_NE(std::string(words.meaning).find(known.in_meaning), std::string::npos) << words.meaning;
  EXPECT_NE(std::string(words.hint).find(known.in_hint), std::string::npos) << words.hint;
  // With rank, operation and round they have to fit Failure::text.
  EXPECT_LE(std::string(words.meaning).size(), 48u);
}

#define TUTTI_KNOWN(status, meaning, hint) \
  Known {                                  \
    status, #status, meaning, hint         \
  }

INSTANTIATE_TEST_SUITE_P(
    All, CompletionStatuses,
    testing::Values(TUTTI_KNOWN(IBV_WC_SUCCESS, "no error", "none"),
                    TUTTI_KNOWN(IBV_WC_LOC_LEN_ERR, "longer than its receive", "versions"),
                    TUTTI_KNOWN(IBV_WC_LOC_QP_OP_ERR, "device here refuses", "report"),
                    TUTTI_KNOWN(IBV_WC_LOC_EEC_OP_ERR, "not used", "driver"),
                    TUTTI_KNOWN(IBV_WC_LOC_PROT_ERR, "no registered memory", "unmapped"),
                    TUTTI_KNOWN(IBV_WC_WR_FLUSH_ERR, "ended before", "earlier error"),
                    TUTTI_KNOWN(IBV_WC_MW_BIND_ERR, "not used", "driver"),
                    TUTTI_KNOWN(IBV_WC_BAD_RESP_ERR, "no valid answer", "cables"),
                    TUTTI_KNOWN(IBV_WC_LOC_ACCESS_ERR, "wrote where this rank",
                                "unmapped or given back here"),
                    TUTTI_KNOWN(IBV_WC_REM_INV_REQ_ERR, "invalid", "versions"),
                    TUTTI_KNOWN(IBV_WC_REM_ACCESS_ERR, "does not allow", "given back there"),
                    TUTTI_KNOWN(IBV_WC_REM_OP_ERR, "could not finish", "its host"),
                    TUTTI_KNOWN(IBV_WC_RETRY_EXC_ERR, "does not answer", "cable"),
                    TUTTI_KNOWN(IBV_WC_RNR_RETRY_EXC_ERR, "no receive", "call an operation"),
                    TUTTI_KNOWN(IBV_WC_LOC_RDD_VIOL_ERR, "not used", "driver"),
                    TUTTI_KNOWN(IBV_WC_REM_INV_RD_REQ_ERR, "not used", "driver"),
                    TUTTI_KNOWN(IBV_WC_REM_ABORT_ERR, "given up", "its host"),
                    TUTTI_KNOWN(IBV_WC_INV_EECN_ERR, "not used", "driver"),
                    TUTTI_KNOWN(IBV_WC_INV_EEC_STATE_ERR, "not used", "driver"),
                    TUTTI_KNOWN(IBV_WC_FATAL_ERR, "has failed", "reset"),
                    TUTTI_KNOWN(IBV_WC_RESP_TIMEOUT_ERR, "too late", "both ports"),
                    TUTTI_KNOWN(IBV_WC_GENERAL_ERR, "error of its own", "vendor error"),
                    TUTTI_KNOWN(IBV_WC_TM_ERR, "not used", "driver"),
                    TUTTI_KNOWN(IBV_WC_TM_RNDV_INCOMPLETE, "not used", "driver")),
    [](const testing::TestParamInfo<Known>& one) { return std::string(one.param.name); });

TEST(CompletionStatuses, that_are_new_have_words_too) {
  const CompletionWords words = words_of(static_cast<ibv_wc_status>(31));
  EXPECT_NE(std::string(words.meaning).find("unknown"), std::string::npos);
}

}  // namespace
}  // namespace tutti::verbs
