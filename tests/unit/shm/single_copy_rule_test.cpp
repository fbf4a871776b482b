// Promise: by the figures of a machine, no payload goes the way that is more than a tenth slower
// there, in no row that was measured on it, but for those that are marked as missed.
#include "shm/single_copy_rule.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::shm {
namespace {

constexpr std::size_t K = 1024, M = K * K;

/// What one row took by reading, over what it took by copying.
struct Row {
  ReadFor what;
  std::size_t bytes;
  double ratio;
  bool is_missed = false;  // known: by these figures, the rule takes the slower way
};

struct Machine {
  const char* name;
  CopyCosts costs;
  std::vector<Row> rows;
};

/// Two cores of a Xeon (Sapphire Rapids, 2.0 GHz): the ratios of shm/README.md, but for allreduces,
/// whose copies have changed since.  Its figures are
/// not those of the probe, which came later: they were chosen so that they give the times of
/// docs/latency.svg and, divided by the ratios, those by copying.  Exchanges at once were not
/// measured on this machine and the next three; they take as many times as long as one rank's
/// copies as was measured later on CPUs that share as much: 1.16 without a shared cache, 1.18 with
/// one.  Its
/// second-level cache was not asked for; processors of this kind have 2 MiB.
const Machine xeon{.name = "Xeon",
                   .costs = {.word = 100,
                             .read_call = 1450,
                             .read_page = 1740,
                             .read_chunk = 6090,
                             .put_page = 500,
                             .put_chunk = 3000,
                             .get_page = 1750,
                             .get_chunk = 12500,
                             .own_chunk = 2700,
                             .exchange_chunk = 18180,
                             .second_cache_bytes = 2 * M},
                   .rows = {{ReadFor::broadcast, 1 * K, 1.9},
                            {ReadFor::broadcast, 4 * K, 1.1},
                            {ReadFor::broadcast, 8 * K, 0.7},
                            {ReadFor::broadcast, 256 * K, 0.4},
                            {ReadFor::broadcast, 2 * M, 0.9},
                            {ReadFor::reduce, 1 * K, 1.3},
                            {ReadFor::reduce, 4 * K, 0.8},
                            {ReadFor::reduce, 64 * K, 0.5},
                            {ReadFor::reduce, 256 * K, 0.5},
                            {ReadFor::reduce, 1 * M, 1.2}}};

/// Two cores of a Xeon (virtual machine, 2.8 GHz, 1.25 MiB of L2 each, 48 MiB of L3): a launch of
/// `tutti-bench broadcast,reduce --local 2 --single-copy default,0,never --iterations 300`.
const Machine xeon_with_large_caches{.name = "Xeon with large caches",
                                     .costs = {.word = 139,
                                               .read_call = 765,
                                               .read_page = 754,
                                               .read_chunk = 3397,
                                               .put_page = 104,
                                               .put_chunk = 2593,
                                               .get_page = 502,
                                               .get_chunk = 4396,
                                               .own_chunk = 1442,
                                               .exchange_chunk = 6887,
                                               .exchange_large = 66193,
                                               .read_chunk_at_once = 4380,
                                               .read_large_at_once = 48274,
                                               .second_cache_bytes = 1.25 * M},
                                     .rows = {{ReadFor::broadcast, 64 * K, 0.71},
                                              {ReadFor::broadcast, 128 * K, 0.59},
                                              {ReadFor::broadcast, 256 * K, 0.56},
                                              {ReadFor::broadcast, 1 * M, 1.08},
                                              {ReadFor::reduce, 256 * K, 1.33},
                                              {ReadFor::reduce, 1 * M, 1.15}}};

/// Two cores of a Xeon (virtual machine, 2.1 GHz, 2 MiB of L2 each, 300 MiB of L3): the ratios are
/// of three launches of `tutti-bench broadcast,reduce,gather --local 2 --single-copy never,0
/// --iterations 100`, but for the broadcast of 1 MiB, which was 0.8 to 1.2 in nine.
const Machine xeon_with_larger_caches{.name = "Xeon with larger caches",
                                      .costs = {.word = 194,
                                                .read_call = 945,
                                                .read_page = 866,
                                                .read_chunk = 3612,
                                                .put_page = 149,
                                                .put_chunk = 2967,
                                                .get_page = 673,
                                                .get_chunk = 6765,
                                                .own_chunk = 1736,
                                                .exchange_chunk = 11166,
                                                .exchange_large = 95528,
                                                .read_chunk_at_once = 6124,
                                                .read_large_at_once = 69496,
                                                .second_cache_bytes = 2 * M},
                                      .rows = {{ReadFor::broadcast, 128 * K, 0.48},
                                               {ReadFor::broadcast, 256 * K, 0.64},
                                               {ReadFor::broadcast, 512 * K, 0.72},
                                               {ReadFor::broadcast, 1 * M, 0.95},
                                               {ReadFor::broadcast, 2 * M, 1.12},
                                               {ReadFor::reduce, 128 * K, 0.64},
                                               {ReadFor::reduce, 256 * K, 0.71},
                                               {ReadFor::reduce, 512 * K, 0.82},
                                               {ReadFor::reduce, 1 * M, 1.11},
                                               {ReadFor::reduce, 2 * M, 1.15},
                                               {ReadFor::gather, 128 * K, 0.65},
                                               {ReadFor::gather, 256 * K, 0.64},
                                               {ReadFor::gather, 512 * K, 0.94},
                                               {ReadFor::gather, 1 * M, 0.99},
                                               {ReadFor::gather, 2 * M, 1.02},
                                               {ReadFor::gather, 4 * M, 1.10}}};

/// This is the same machine on another day, when putting and getting a chunk took equally long. The
/// ratios are of six launches in turns.
const Machine xeon_with_larger_caches_again{.name = "Xeon with larger caches, again",
                                            .costs = {.word = 186,
                                                      .read_call = 1172,
                                                      .read_page = 1100,
                                                      .read_chunk = 4497,
                                                      .put_page = 149,
                                                      .put_chunk = 4192,
                                                      .get_page = 673,
                                                      .get_chunk = 4023,
                                                      .own_chunk = 1900,
                                                      .exchange_chunk = 9241,
                                                      .exchange_large = 70967,
                                                      .read_chunk_at_once = 4941,
                                                      .read_large_at_once = 62750,
                                                      .second_cache_bytes = 2 * M},
                                            .rows = {{ReadFor::reduce, 64 * K, 0.90},
                                                     {ReadFor::reduce, 128 * K, 0.89},
                                                     {ReadFor::reduce, 256 * K, 0.95},
                                                     {ReadFor::reduce, 512 * K, 1.12}}};

/// Two CPUs of an AMD EPYC (virtual machine, 2.6 GHz), of which a line takes 0.4 us from one to the
/// other: figures of the probe and ratios of `tutti-bench ... --local 2 --single-copy 0,never`, one
/// after the other, with plain stores into the window.  Those of allreduces are of a later run,
/// after copying had gained by answers.
const Machine epyc{
    .name = "EPYC",
    .costs = {.word = 376,
              .read_call = 1582,
              .read_page = 1532,
              .read_chunk = 5638,
              .put_page = 130,
              .put_chunk = 6389,
              .get_page = 110,
              .get_chunk = 1432,
              .own_chunk = 1162,
              .exchange_chunk = 9820},
    .rows = {{ReadFor::broadcast, 1 * K, 7.86},   {ReadFor::broadcast, 4 * K, 4.13},
             {ReadFor::broadcast, 16 * K, 1.25},  {ReadFor::broadcast, 64 * K, 0.66},
             {ReadFor::broadcast, 256 * K, 0.61}, {ReadFor::broadcast, 1 * M, 0.49},
             {ReadFor::broadcast, 8 * M, 0.91},   {ReadFor::reduce, 1 * K, 7.11},
             {ReadFor::reduce, 4 * K, 4.42},      {ReadFor::reduce, 16 * K, 1.37},
             {ReadFor::reduce, 64 * K, 0.81},     {ReadFor::reduce, 256 * K, 0.82},
             {ReadFor::reduce, 1 * M, 0.94},      {ReadFor::reduce, 8 * M, 1.98},
             {ReadFor::allreduce, 1 * K, 9.26},   {ReadFor::allreduce, 4 * K, 1.92},
             {ReadFor::allreduce, 16 * K, 3.97},  {ReadFor::allreduce, 64 * K, 3.03},
             {ReadFor::allreduce, 256 * K, 2.53}, {ReadFor::allreduce, 1 * M, 2.50},
             {ReadFor::allreduce, 8 * M, 1.40},   {ReadFor::allgather, 1 * K, 11.66},
             {ReadFor::allgather, 4 * K, 5.99},   {ReadFor::allgather, 16 * K, 1.27},
             {ReadFor::allgather, 64 * K, 0.74},  {ReadFor::allgather, 256 * K, 0.66},
             {ReadFor::allgather, 1 * M, 0.58},   {ReadFor::allgather, 8 * M, 1.00},
             {ReadFor::alltoall, 1 * K, 13.48},   {ReadFor::alltoall, 4 * K, 5.73},
             {ReadFor::alltoall, 16 * K, 1.22},   {ReadFor::alltoall, 64 * K, 0.71},
             {ReadFor::alltoall, 256 * K, 0.64},  {ReadFor::alltoall, 1 * M, 0.59},
             {ReadFor::alltoall, 8 * M, 0.93},    {ReadFor::gather, 1 * K, 9.47},
             {ReadFor::gather, 4 * K, 3.85},      {ReadFor::gather, 16 * K, 1.33},
             {ReadFor::gather, 64 * K, 0.81},     {ReadFor::gather, 256 * K, 0.86},
             {ReadFor::gather, 1 * M, 0.85},      {ReadFor::gather, 8 * M, 1.36},
             {ReadFor::scatter, 1 * K, 9.57},     {ReadFor::scatter, 4 * K, 4.47},
             {ReadFor::scatter, 16 * K, 1.26},    {ReadFor::scatter, 64 * K, 0.69},
             {ReadFor::scatter, 256 * K, 0.56},   {ReadFor::scatter, 1 * M, 0.49},
             {ReadFor::scatter, 8 * M, 0.84}}};

/// An EPYC like that while its two CPUs shared a cache: the ratios were measured before there was a
/// probe, and the figures come from the probe at another such time.
const Machine epyc_with_one_cache{.name = "EPYC with one cache",
                                  .costs = {.word = 356,
                                            .read_call = 1572,
                                            .read_page = 1542,
                                            .read_chunk = 5688,
                                            .put_page = 130,
                                            .put_chunk = 1713,
                                            .get_page = 120,
                                            .get_chunk = 1392,
                                            .own_chunk = 1172,
                                            .exchange_chunk = 4380},
                                  .rows = {{ReadFor::broadcast, 4 * K, 3.69},
                                           {ReadFor::broadcast, 64 * K, 1.26},
                                           {ReadFor::broadcast, 1 * M, 1.76},
                                           {ReadFor::reduce, 4 * K, 3.1},
                                           {ReadFor::reduce, 64 * K, 1.57},
                                           {ReadFor::reduce, 256 * K, 1.4},
                                           {ReadFor::allreduce, 256 * K, 2.0},
                                           {ReadFor::allreduce, 1 * M, 1.2},
                                           {ReadFor::allgather, 64 * K, 1.47},
                                           {ReadFor::allgather, 1 * M, 1.24}}};

/// Two cores of an EPYC that share no cache (a word takes 0.25 us): figures of the probe, with
/// streaming stores where they are faster, and ratios of `tutti-bench allgather,alltoall --local 2
/// --iterations 600 --single-copy never,0`, three alternating blocks.
const Machine epyc_with_two_cores_before{.name = "EPYC with two cores, before",
                                         .costs = {.word = 250,
                                                   .read_call = 1583,
                                                   .read_page = 1522,
                                                   .read_chunk = 5528,
                                                   .put_page = 481,
                                                   .put_chunk = 2563,
                                                   .get_page = 380,
                                                   .get_chunk = 3305,
                                                   .own_chunk = 1172,
                                                   .exchange_chunk = 7310},
                                         .rows = {{ReadFor::allgather, 16 * K, 1.59},
                                                  {ReadFor::allgather, 64 * K, 1.09},
                                                  {ReadFor::allgather, 256 * K, 0.92},
                                                  {ReadFor::allgather, 1 * M, 1.07},
                                                  {ReadFor::alltoall, 16 * K, 1.49},
                                                  {ReadFor::alltoall, 64 * K, 0.93},
                                                  {ReadFor::alltoall, 256 * K, 0.88},
                                                  {ReadFor::alltoall, 1 * M, 0.92}}};

/// Two cores of an EPYC that share no cache (a word takes 0.25 us): figures of the probe of a run
/// of `tutti-bench ... --local 2 --iterations 2000 --single-copy default,never,0`, and its ratios
/// over ten alternating blocks.
const Machine epyc_with_two_cores{.name = "EPYC with two cores",
                                  .costs = {.word = 421,
                                            .read_call = 1602,
                                            .read_page = 1552,
                                            .read_chunk = 5528,
                                            .put_page = 521,
                                            .put_chunk = 2113,
                                            .get_page = 370,
                                            .get_chunk = 3715,
                                            .own_chunk = 1182,
                                            .exchange_chunk = 7611},
                                  .rows = {{ReadFor::broadcast, 1 * K, 7.12},
                                           {ReadFor::broadcast, 4 * K, 2.19},
                                           {ReadFor::broadcast, 16 * K, 1.35},
                                           {ReadFor::broadcast, 32 * K, 1.09},
                                           {ReadFor::broadcast, 64 * K, 0.94},
                                           {ReadFor::broadcast, 128 * K, 0.95},
                                           {ReadFor::broadcast, 256 * K, 0.97},
                                           {ReadFor::broadcast, 1 * M, 1.19},
                                           // In two other runs it took 1.28 and 1.19.
                                           {ReadFor::broadcast, 2 * M, 0.86, true},
                                           {ReadFor::reduce, 1 * K, 3.52},
                                           {ReadFor::reduce, 4 * K, 1.69},
                                           {ReadFor::reduce, 16 * K, 1.18},
                                           {ReadFor::reduce, 32 * K, 1.10},
                                           {ReadFor::reduce, 64 * K, 0.96},
                                           {ReadFor::reduce, 128 * K, 0.98},
                                           {ReadFor::reduce, 256 * K, 0.97},
                                           {ReadFor::reduce, 1 * M, 1.44},
                                           {ReadFor::reduce, 2 * M, 1.53},
                                           {ReadFor::allreduce, 1 * K, 9.61},
                                           {ReadFor::allreduce, 4 * K, 1.87},
                                           {ReadFor::allreduce, 16 * K, 2.95},
                                           {ReadFor::allreduce, 32 * K, 2.50},
                                           {ReadFor::allreduce, 64 * K, 3.72},
                                           {ReadFor::allreduce, 128 * K, 3.33},
                                           {ReadFor::allreduce, 256 * K, 3.15},
                                           {ReadFor::allreduce, 1 * M, 2.75},
                                           {ReadFor::allreduce, 2 * M, 2.74},
                                           {ReadFor::allgather, 1 * K, 5.00},
                                           {ReadFor::allgather, 4 * K, 1.38},
                                           {ReadFor::allgather, 16 * K, 1.41},
                                           {ReadFor::allgather, 32 * K, 1.15},
                                           {ReadFor::allgather, 64 * K, 0.93},
                                           {ReadFor::allgather, 128 * K, 0.85},
                                           {ReadFor::allgather, 256 * K, 0.85},
                                           {ReadFor::allgather, 1 * M, 0.79},
                                           {ReadFor::allgather, 2 * M, 0.93},
                                           {ReadFor::alltoall, 1 * K, 4.77},
                                           {ReadFor::alltoall, 4 * K, 1.23},
                                           {ReadFor::alltoall, 16 * K, 1.38},
                                           {ReadFor::alltoall, 32 * K, 1.16},
                                           {ReadFor::alltoall, 64 * K, 0.94},
                                           {ReadFor::alltoall, 128 * K, 0.83},
                                           {ReadFor::alltoall, 256 * K, 0.82},
                                           {ReadFor::alltoall, 1 * M, 0.78},
                                           {ReadFor::alltoall, 2 * M, 0.71},
                                           {ReadFor::gather, 1 * K, 3.57},
                                           {ReadFor::gather, 4 * K, 1.80},
                                           {ReadFor::gather, 16 * K, 1.20},
                                           {ReadFor::gather, 32 * K, 1.15},
                                           {ReadFor::gather, 64 * K, 1.00},
                                           {ReadFor::gather, 128 * K, 0.98},
                                           {ReadFor::gather, 256 * K, 1.14},
                                           {ReadFor::gather, 1 * M, 1.13},
                                           {ReadFor::gather, 2 * M, 1.13},
                                           {ReadFor::scatter, 1 * K, 6.13},
                                           {ReadFor::scatter, 4 * K, 2.35},
                                           {ReadFor::scatter, 16 * K, 1.38},
                                           {ReadFor::scatter, 32 * K, 1.04},
                                           {ReadFor::scatter, 64 * K, 0.88},
                                           {ReadFor::scatter, 128 * K, 0.93},
                                           {ReadFor::scatter, 256 * K, 0.94},
                                           {ReadFor::scatter, 1 * M, 1.08},
                                           {ReadFor::scatter, 2 * M, 1.08},
                                           // Figures of at most 64 KiB do not show this gain.
                                           {ReadFor::scatter, 8 * M, 0.77, true},
                                           {ReadFor::alltoall, 8 * M, 0.72},
                                           {ReadFor::broadcast, 8 * M, 2.50},
                                           {ReadFor::reduce, 8 * M, 2.94},
                                           {ReadFor::gather, 8 * M, 1.17}}};

/// Two cores of an EPYC that share a cache (a word takes 0.065 us), as the one before.
const Machine epyc_with_shared_cache{
    .name = "EPYC with a shared cache",
    .costs = {.word = 85,
              .read_call = 2133,
              .read_page = 1983,
              .read_chunk = 6289,
              .put_page = 360,
              .put_chunk = 2163,
              .get_page = 150,
              .get_chunk = 1722,
              .own_chunk = 1933,
              .exchange_chunk = 4757},
    .rows = {{ReadFor::broadcast, 1 * K, 12.72},  {ReadFor::broadcast, 4 * K, 5.42},
             {ReadFor::broadcast, 16 * K, 1.39},  {ReadFor::broadcast, 32 * K, 1.01},
             {ReadFor::broadcast, 64 * K, 1.57},  {ReadFor::broadcast, 128 * K, 1.95},
             {ReadFor::broadcast, 256 * K, 2.21}, {ReadFor::broadcast, 1 * M, 2.52},
             {ReadFor::broadcast, 2 * M, 2.49},   {ReadFor::reduce, 1 * K, 8.70},
             {ReadFor::reduce, 4 * K, 5.59},      {ReadFor::reduce, 16 * K, 1.34},
             {ReadFor::reduce, 32 * K, 1.89},     {ReadFor::reduce, 64 * K, 1.11},
             {ReadFor::reduce, 128 * K, 2.40},    {ReadFor::reduce, 256 * K, 2.56},
             {ReadFor::reduce, 1 * M, 3.02},      {ReadFor::reduce, 2 * M, 3.48},
             {ReadFor::allreduce, 1 * K, 22.89},  {ReadFor::allreduce, 4 * K, 5.14},
             {ReadFor::allreduce, 16 * K, 4.33},  {ReadFor::allreduce, 32 * K, 3.05},
             {ReadFor::allreduce, 64 * K, 2.91},  {ReadFor::allreduce, 128 * K, 2.48},
             {ReadFor::allreduce, 256 * K, 2.05}, {ReadFor::allreduce, 1 * M, 1.36},
             {ReadFor::allreduce, 2 * M, 1.26},   {ReadFor::allgather, 1 * K, 12.34},
             {ReadFor::allgather, 4 * K, 4.68},   {ReadFor::allgather, 16 * K, 1.03},
             {ReadFor::allgather, 32 * K, 1.10},  {ReadFor::allgather, 64 * K, 1.25},
             {ReadFor::allgather, 128 * K, 1.40}, {ReadFor::allgather, 256 * K, 1.35},
             {ReadFor::allgather, 1 * M, 1.11},   {ReadFor::allgather, 2 * M, 1.00},
             {ReadFor::alltoall, 1 * K, 12.71},   {ReadFor::alltoall, 4 * K, 3.84},
             {ReadFor::alltoall, 16 * K, 1.03},   {ReadFor::alltoall, 32 * K, 0.96},
             {ReadFor::alltoall, 64 * K, 1.22},   {ReadFor::alltoall, 128 * K, 1.25},
             {ReadFor::alltoall, 256 * K, 1.12},  {ReadFor::alltoall, 1 * M, 0.97},
             {ReadFor::alltoall, 2 * M, 0.58},    {ReadFor::gather, 1 * K, 10.20},
             {ReadFor::gather, 4 * K, 5.54},      {ReadFor::gather, 16 * K, 1.39},
             {ReadFor::gather, 32 * K, 2.43},     {ReadFor::gather, 64 * K, 2.24},
             {ReadFor::gather, 128 * K, 2.08},    {ReadFor::gather, 256 * K, 2.18},
             {ReadFor::gather, 1 * M, 1.76},      {ReadFor::gather, 2 * M, 1.77},
             {ReadFor::scatter, 1 * K, 12.82},    {ReadFor::scatter, 4 * K, 4.32},
             {ReadFor::scatter, 16 * K, 1.29},    {ReadFor::scatter, 32 * K, 1.01},
             {ReadFor::scatter, 64 * K, 1.31},    {ReadFor::scatter, 128 * K, 1.30},
             {ReadFor::scatter, 256 * K, 1.28},   {ReadFor::scatter, 1 * M, 1.23},
             {ReadFor::scatter, 2 * M, 1.05}}};

/// Two cores of a later EPYC (family 26) that share a cache: the costs are those that one run of
/// `tutti-bench alltoall --local 2` measured, the ratios are of four launches of compare_mpi.py
/// with reading and four without.
const Machine later_epyc_with_shared_cache{.name = "later EPYC with a shared cache",
                                           .costs = {.word = 90,
                                                     .read_call = 1231,
                                                     .read_page = 1252,
                                                     .read_chunk = 4937,
                                                     .put_page = 50,
                                                     .put_chunk = 530,
                                                     .get_page = 90,
                                                     .get_chunk = 851,
                                                     .own_chunk = 591,
                                                     .exchange_chunk = 2064},
                                           .rows = {{ReadFor::alltoall, 512 * K, 1.43},
                                                    {ReadFor::alltoall, 1 * M, 1.41},
                                                    {ReadFor::alltoall, 2 * M, 1.44},
                                                    {ReadFor::alltoall, 4 * M, 1.80},
                                                    {ReadFor::alltoall, 8 * M, 1.52},
                                                    {ReadFor::scatter, 512 * K, 1.93},
                                                    {ReadFor::scatter, 1 * M, 1.72},
                                                    {ReadFor::scatter, 2 * M, 1.60},
                                                    {ReadFor::scatter, 4 * M, 1.65},
                                                    {ReadFor::scatter, 8 * M, 1.64}}};

/// The costs are of a later launch that also measured 512 KiB.
const Machine later_epyc_with_shared_cache_by_long_blocks{
    .name = "later EPYC with a shared cache, by long blocks",
    .costs = {.word = 85,
              .read_call = 1803,
              .read_page = 2023,
              .read_chunk = 6540,
              .put_page = 70,
              .put_chunk = 691,
              .get_page = 80,
              .get_chunk = 791,
              .own_chunk = 711,
              .exchange_chunk = 2264,
              .exchange_large = 19550,
              .read_chunk_at_once = 6690,
              .read_large_at_once = 47471},
    .rows = later_epyc_with_shared_cache.rows};

/// These are figures of the same machine while its two cores share no cache: ratios of three
/// launches each way, costs of a run of the probe as it was then, and those of a later launch,
/// which also measured 512 KiB.
const std::vector<Row> later_epyc_rows = {
    {ReadFor::allgather, 64 * K, 1.45}, {ReadFor::allgather, 256 * K, 1.09},
    {ReadFor::allgather, 1 * M, 1.14},  {ReadFor::allgather, 8 * M, 1.65},
    {ReadFor::alltoall, 64 * K, 1.35},  {ReadFor::alltoall, 512 * K, 1.02},
    {ReadFor::alltoall, 1 * M, 1.08},   {ReadFor::alltoall, 4 * M, 1.16},
    {ReadFor::alltoall, 8 * M, 1.28}};
const Machine later_epyc{.name = "later EPYC",
                         .costs = {.word = 326,
                                   .read_call = 1332,
                                   .read_page = 1302,
                                   .read_chunk = 5108,
                                   .put_page = 150,
                                   .put_chunk = 1272,
                                   .get_page = 250,
                                   .get_chunk = 1963,
                                   .own_chunk = 601,
                                   .exchange_chunk = 4327},
                         .rows = later_epyc_rows};
const Machine later_epyc_by_long_blocks{.name = "later EPYC, by long blocks",
                                        .costs = {.word = 366,
                                                  .read_call = 1452,
                                                  .read_page = 1632,
                                                  .read_chunk = 5569,
                                                  .put_page = 160,
                                                  .put_chunk = 1522,
                                                  .get_page = 280,
                                                  .get_chunk = 2023,
                                                  .own_chunk = 631,
                                                  .exchange_chunk = 4596,
                                                  .exchange_large = 32379,
                                                  .read_chunk_at_once = 7021,
                                                  .read_large_at_once = 55353},
                                        .rows = later_epyc_rows};

const Machine machines[] = {xeon,
                            epyc,
                            epyc_with_one_cache,
                            xeon_with_large_caches,
                            xeon_with_larger_caches,
                            xeon_with_larger_caches_again,
                            epyc_with_two_cores_before,
                            epyc_with_two_cores,
                            epyc_with_shared_cache,
                            later_epyc_with_shared_cache,
                            later_epyc_with_shared_cache_by_long_blocks,
                            later_epyc,
                            later_epyc_by_long_blocks};

void expect_no_loss(const Machine& machine) {
  const ReadRanges ranges = reading_by_costs(machine.costs);
  for (const Row& row : machine.rows) {
    const bool reads = ranges[static_cast<std::size_t>(row.what)].holds(row.bytes);
    const double loss = reads ? row.ratio : 1 / row.ratio;
    EXPECT_EQ(loss <= 1.1 + 1e-9, !row.is_missed)
        << machine.name << ": " << name_of(row.what) << " of " << row.bytes << " bytes is "
        << (reads ? "read" : "copied") << "; " << text_of(ranges);
  }
}

TEST(SingleCopyRule, no_row_is_a_tenth_slower_than_the_better_way) {
  for (const Machine& machine : machines) expect_no_loss(machine);
}

/// Without it the first test would hold for a rule that never reads, on a machine where none pays.
TEST(SingleCopyRule, something_is_read_and_something_is_not) {
  const ReadRanges ranges = reading_by_costs(xeon.costs);
  for (std::size_t what = 0; what < read_for_count; ++what) {
    EXPECT_FALSE(ranges[what].holds(1 * K));
    EXPECT_EQ(ranges[what].holds(512 * K), static_cast<ReadFor>(what) != ReadFor::allreduce);
  }
}

TEST(SingleCopyRule, where_ranks_share_cpus_nobody_reads_what_several_get) {
  const ReadRanges apart = reading_by_costs(xeon.costs),
                   shared = reading_by_costs(xeon.costs, true);
  const auto holds = [](const ReadRanges& ranges, ReadFor what) {
    return ranges[static_cast<std::size_t>(what)].holds(64 * K);
  };
  for (const ReadFor what : {ReadFor::broadcast, ReadFor::gather, ReadFor::allgather}) {
    EXPECT_TRUE(holds(apart, what)) << name_of(what);
    EXPECT_FALSE(holds(shared, what)) << name_of(what);
  }
  for (const ReadFor what : {ReadFor::reduce, ReadFor::scatter, ReadFor::alltoall}) {
    EXPECT_TRUE(holds(apart, what)) << name_of(what);
    EXPECT_TRUE(holds(shared, what)) << name_of(what);
  }
}

TEST(SingleCopyRule, slow_reads_are_never_taken) {
  CopyCosts costs = xeon.costs;
  costs.read_page += 20000;
  costs.read_chunk += 16 * 20000;
  for (const ReadRange& range : reading_by_costs(costs)) {
    EXPECT_FALSE(range.holds(1 * M));
    EXPECT_FALSE(range.holds(16 * M));
  }
}

/// Reads that begin late are taken where there is enough to read.
TEST(SingleCopyRule, a_late_first_byte_moves_the_threshold) {
  CopyCosts late = xeon.costs;
  for (double* figure : {&late.read_call, &late.read_page, &late.read_chunk}) *figure += 5000;
  for (std::size_t what = 0; what < read_for_count; ++what) {
    if (static_cast<ReadFor>(what) == ReadFor::allreduce) continue;  // which is never read
    const ReadRange before = reading_by_costs(xeon.costs)[what],
                    after = reading_by_costs(late)[what];
    EXPECT_GT(after.from, before.from) << name_of(static_cast<ReadFor>(what));
    EXPECT_LE(after.from, 2 * M) << name_of(static_cast<ReadFor>(what));
  }
}

/// What 512 KiB take when both ranks read, or both copy, at the same time decides about long
/// blocks, whatever the figures of a chunk are.
TEST(SingleCopyRule, long_blocks_go_by_what_was_measured_of_them) {
  const auto alltoall = [](double read_ns, double copied_ns) {
    CopyCosts costs = epyc_with_two_cores.costs;
    costs.read_large_at_once = read_ns;
    costs.exchange_large = copied_ns;
    return reading_by_costs(costs)[static_cast<std::size_t>(ReadFor::alltoall)];
  };
  for (const std::size_t bytes : {64 * K, 1 * M, 8 * M}) {
    EXPECT_TRUE(alltoall(30e3, 50e3).holds(bytes)) << bytes;
    EXPECT_EQ(alltoall(50e3, 30e3).holds(bytes), bytes == 64 * K) << bytes;
  }
  EXPECT_FALSE(alltoall(50e3, 50e3).holds(1 * M));  // no gain, and a system call
  // Where 512 KiB are not read, longer blocks are not read either, even if they were faster by the
  // line through the figures.
  CopyCosts costs = later_epyc_by_long_blocks.costs;
  costs.exchange_large = 1.04 * costs.read_large_at_once;
  const ReadRange range = reading_by_costs(costs)[static_cast<std::size_t>(ReadFor::alltoall)];
  EXPECT_LT(reading_ns(ReadFor::alltoall, 64 * M, costs),
            0.95 * copying_ns(ReadFor::alltoall, 64 * M, costs));
  EXPECT_FALSE(range.holds(64 * M));
}

/// A rank that reads while the other one reads, too, may take longer than one that reads alone.
TEST(SingleCopyRule, exchanges_go_by_reads_at_once_and_others_by_reads_alone) {
  CopyCosts costs = xeon.costs;
  costs.read_chunk_at_once = 10 * costs.read_chunk;
  for (const ReadFor what : {ReadFor::broadcast, ReadFor::scatter, ReadFor::alltoall})
    EXPECT_EQ(reading_by_costs(costs)[static_cast<std::size_t>(what)].holds(64 * K),
              what != ReadFor::alltoall)
        << name_of(what);
}

TEST(SingleCopyRule, what_is_asked_for_holds) {
  const ReadRanges from = reading_from(4 * K);
  const auto holds = [&](ReadFor what, std::size_t bytes) {
    return from[static_cast<std::size_t>(what)].holds(bytes);
  };
  EXPECT_FALSE(holds(ReadFor::broadcast, 4 * K - 1));
  EXPECT_TRUE(holds(ReadFor::broadcast, 4 * K));
  EXPECT_TRUE(holds(ReadFor::broadcast, 2 * M));
  EXPECT_FALSE(holds(ReadFor::broadcast, 2 * M + 1));
  EXPECT_TRUE(holds(ReadFor::reduce, 512 * K));
  EXPECT_FALSE(holds(ReadFor::reduce, 512 * K + 1));
  EXPECT_FALSE(holds(ReadFor::allreduce, 256 * K - 1));
  EXPECT_TRUE(holds(ReadFor::allreduce, 256 * K));
  for (const ReadFor what :
       {ReadFor::gather, ReadFor::scatter, ReadFor::allgather, ReadFor::alltoall}) {
    EXPECT_FALSE(holds(what, 8 * K - 1));
    EXPECT_TRUE(holds(what, 8 * K));
  }
  for (const ReadRange& range : reading_from(SIZE_MAX)) EXPECT_FALSE(range.holds(1 * M));
  for (const ReadRange& range : reading_from(0)) {
    EXPECT_TRUE(range.holds(0));
    EXPECT_TRUE(range.holds(64 * M));
  }
  EXPECT_FALSE(reading_from(SIZE_MAX / 2)[2].holds(SIZE_MAX - 1));  // 64 times that is too much
}

TEST(SingleCopyRule, figures_and_ranges_are_said) {
  EXPECT_EQ(text_of(reading_from(4 * K)),
            "broadcast 4K to 2M; reduce 4K to 512K; allreduce from 256K on; gather from 8K on; "
            "scatter from 8K on; allgather from 8K on; alltoall from 8K on");
  EXPECT_EQ(text_of(no_reading()).substr(0, 30), "broadcast never; reduce never;");
  EXPECT_EQ(text_of(reading_by_costs(epyc_with_two_cores.costs)),
            "broadcast 64K; reduce never; allreduce never; gather never; scatter 64K; "
            "allgather from 64K on; alltoall from 64K on");
  CopyCosts costs = xeon.costs;
  EXPECT_EQ(text_of(costs).find("512K"), std::string::npos);
  costs.read_large_at_once = 71000;
  costs.exchange_large = 72000;
  const std::string figures = text_of(costs);
  for (const char* part :
       {"1450 ns before the first byte", "64K 6090 ns", "64K in 3000 and out 12500",
        "512K read in 71000 and copied in 72000 ns", "second-level cache 2048 KiB"})
    EXPECT_NE(figures.find(part), std::string::npos) << figures;
}

}  // namespace
}  // namespace tutti::shm
