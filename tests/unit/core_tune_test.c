/* SPDX-License-Identifier: Apache-2.0 */
/* The search against models of a network: what it finds, how often it asks, what an
 * outlier does to it; and the text forms of what it found. */
#include <math.h>

#include "runtime/base/mem.h"
#include "runtime/core/tune.h"
#include "runtime/core/tune_file.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

#define MB (1u << 20)
#define MS 1000000ull

enum { TENSORS = 40 };

static const struct tuning START = {.fusion_bytes = 128u << 20};

static struct tune_config tune_config_make(void)
{
    return (struct tune_config){
        .start = START, .n_warmup = 3, .n_steps = 10, .n_samples = 20};
}

/* --- a network --- */

struct model {
    double latency_s, bytes_per_s; /* of a batch */
    double backward_s;             /* over which the tensors come */
    double noise;                  /* relative, of a step */
    uint32_t hiccups_in;           /* one of so many steps takes 20 times as long */
    uint64_t best_whole;           /* the switch point's place */
    struct seeded rng;
};

/* TENSORS of 2.5 MiB come at equal distances; a batch begins when the one before is
 * done, and takes what has come, but at most the threshold; the window delays it. */
static double step_s(const struct model *m, const struct tuning *t)
{
    const double each = 2.5 * MB;
    double free_at = 0;
    uint32_t at = 0;

    while (at < TENSORS) {
        double come = m->backward_s * (at + 1) / TENSORS;
        double begin = come + (double)t->gather_ns / 1e9;
        double bytes = each;
        uint32_t n = 1;

        if (begin < free_at)
            begin = free_at;
        while (at + n < TENSORS && m->backward_s * (at + n + 1) / TENSORS <= begin
               && bytes + each <= (double)t->fusion_bytes) {
            bytes += each;
            n++;
        }
        at += n;
        free_at = begin + m->latency_s + bytes / m->bytes_per_s;
    }
    return free_at;
}

/* A switch point off by a factor of f costs 3% for each power of two. */
static double model_cost(const struct model *m, const struct tuning *t)
{
    double s = step_s(m, t);

    if (m->best_whole > 0) {
        double whole = t->whole_bytes > 0 ? (double)t->whole_bytes : 32768;

        s *= 1 + 0.03 * fabs(log2(whole / (double)m->best_whole));
    }
    return s;
}

static double model_noisy_cost(struct model *m, const struct tuning *t)
{
    double s = model_cost(m, t);

    s *= 1 + m->noise * ((double)seeded_below(&m->rng, 2001) / 1000 - 1);
    if (m->hiccups_in > 0 && seeded_below(&m->rng, m->hiccups_in) == 0)
        s *= 20;
    return s;
}

static double best_of_grid(const struct model *m)
{
    double best = 1e9;

    for (uint64_t f = 256u << 10; f <= 256u << 20; f *= 2)
        for (int g = 0; g < 9; g++)
            for (uint64_t w = 8192; w <= 512u << 10; w *= 2) {
                struct tuning t = {.fusion_bytes = f,
                                   .gather_ns = g ? (MS / 16) << g : 0,
                                   .whole_bytes = w};

                best = fmin(best, model_cost(m, &t));
            }
    return best;
}

/* One step: two batches. True: a sample is complete. */
static bool one_step(struct tune *t, uint64_t *now, double s, struct tune_sample *ret)
{
    bool is_complete = false;

    for (uint64_t id = 1; id <= TENSORS; id++) {
        tune_tensor(t, id, 1000);
        if (id == TENSORS / 2 || id == TENSORS) {
            *now += (uint64_t)(s * 1e9 / 2);
            is_complete |= tune_batch(t, *now, ret);
        }
    }
    return is_complete;
}

/* Until it is done; how many samples it took. */
static uint32_t tune_search(struct tune *t, struct model *m)
{
    struct tune_sample sample;
    uint64_t now = 1000;
    uint32_t n = 0;

    for (int steps = 0; !tune_is_done(t); steps++) {
        assert_true(steps < 5000);
        if (!one_step(t, &now, model_noisy_cost(m, tune_settings(t)), &sample))
            continue;
        n++;
        tune_applied(t);
    }
    return n;
}

UNIT_TEST(it_comes_within_90_percent_of_the_best)
{
    static const struct model models[] = {
        {.latency_s = 2e-3, .bytes_per_s = 1.25e8, .backward_s = 0.06},
        {.latency_s = 1e-4, .bytes_per_s = 1.25e9, .backward_s = 0.06},
        {.latency_s = 1e-2, .bytes_per_s = 1.25e9, .backward_s = 0.2},
        {.latency_s = 1e-5, .bytes_per_s = 5e9, .backward_s = 0.01},
        {.latency_s = 1e-2, .bytes_per_s = 5e9, .backward_s = 0.001},
        {.latency_s = 1e-3, .bytes_per_s = 1e9, .backward_s = 1, .best_whole = 1 << 18},
    };
    uint32_t n_bad = 0, n = 0;

    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        for (uint64_t seed = 1; seed <= 60; seed++) {
            struct tune_config cfg = tune_config_make();
            struct model m = models[i];
            struct tune *t;

            m.noise = 0.04;
            m.hiccups_in = 12;
            m.rng.state = seed * 7919;
            assert_int_equal(tune_new(&cfg, &t), 0);
            (void)tune_search(t, &m);
            n++;
            n_bad += best_of_grid(&m) < 0.9 * model_cost(&m, tune_settings(t));
            tune_free(t);
        }
    print_message("# %u of %u searches ended below 90%%\n", n_bad, n);
    assert_int_equal(n_bad, 0);
}

UNIT_TEST(it_keeps_to_the_number_of_samples)
{
    struct model m = {.latency_s = 1e-3, .bytes_per_s = 1e9, .backward_s = 0.1};

    for (uint32_t max = 1; max <= 60; max++) {
        struct tune_config cfg = tune_config_make();
        struct tune *t;
        uint32_t n;

        cfg.n_samples = max;
        cfg.n_warmup = max % 4;
        assert_int_equal(tune_new(&cfg, &t), 0);
        n = tune_search(t, &m);
        assert_true(n <= max + max % 4);
        assert_true(n <= 29 + 4); /* it ends by itself */
        assert_int_equal(tune_n_samples(t), n - max % 4);
        assert_true(tune_best(t) >= tune_first(t));
        tune_free(t);
    }
}

UNIT_TEST(what_is_fixed_stays)
{
    struct model m = {.latency_s = 1e-2, .bytes_per_s = 1e9, .backward_s = 0.1};
    struct tune_config cfg = tune_config_make();
    struct tune_sample sample;
    struct tune *t;
    uint64_t now = 1;

    cfg.start = (struct tuning){3 * MB, 7 * MS, 12345, 54321};
    for (unsigned fixed = 0; fixed < 1u << TUNE_DIMS; fixed++) {
        for (int d = 0; d < TUNE_DIMS; d++)
            cfg.is_fixed[d] = fixed >> d & 1;
        assert_int_equal(tune_new(&cfg, &t), 0);
        while (!tune_is_done(t)) {
            for (int d = 0; d < TUNE_DIMS; d++)
                if (cfg.is_fixed[d])
                    assert_int_equal(tuning_get(tune_settings(t), (enum tune_dim)d),
                                     tuning_get(&cfg.start, (enum tune_dim)d));
            if (one_step(t, &now, model_cost(&m, tune_settings(t)), &sample))
                tune_applied(t);
        }
        tune_free(t);
    }
}

/* All the same: what is in use stays. */
UNIT_TEST(noise_alone_moves_nothing)
{
    struct model m = {.latency_s = 0, .bytes_per_s = 1e15, .backward_s = 0.1};
    struct tune_config cfg = tune_config_make();
    struct tune *t;

    cfg.is_fixed[TUNE_GATHER] = true; /* it would cost */
    m.noise = 0.01;
    m.rng.state = 5;
    assert_int_equal(tune_new(&cfg, &t), 0);
    (void)tune_search(t, &m);
    assert_memory_equal(tune_settings(t), &START, sizeof(START));
    tune_free(t);
}

/* --- samples --- */

UNIT_TEST(a_sample_is_the_median_of_its_steps)
{
    struct tune_config cfg = tune_config_make();
    struct tune_sample sample;
    struct tune *t;
    uint64_t now = 1;

    cfg.n_warmup = 0;
    assert_int_equal(tune_new(&cfg, &t), 0);
    for (int i = 0; i < 30; i++) {
        double s = i < 5 ? 50 : i == 9 || i == 12 ? 100 : i == 10 ? 0.001 : 2;

        if (one_step(t, &now, s, &sample))
            break;
    }
    assert_true(fabs(sample.bytes_per_s - TENSORS * 1000 / 2.0) < 1);
    assert_false(sample.is_warmup);
    tune_free(t);
}

UNIT_TEST(the_first_steps_after_a_change_do_not_count)
{
    struct tune_config cfg = tune_config_make();
    struct tune_sample sample;
    struct tune *t;
    uint64_t now = 1;
    int n = 0;

    cfg.n_steps = 1;
    cfg.n_warmup = 0;
    assert_int_equal(tune_new(&cfg, &t), 0);
    tune_applied(t);
    while (!one_step(t, &now, n < 5 ? 100 : 1, &sample))
        n++;
    assert_true(fabs(sample.bytes_per_s - TENSORS * 1000) < 1);
    /* Until all ranks have the next settings nothing is measured. */
    for (int i = 0; i < 100; i++)
        assert_false(one_step(t, &now, 1, &sample));
    tune_applied(t);
    for (n = 0; !one_step(t, &now, 1, &sample); n++)
        ;
    assert_in_range(n, 5, 7);
    tune_free(t);
}

UNIT_TEST(names_that_never_come_again_are_steps_too)
{
    struct tune_config cfg = tune_config_make();
    struct tune_sample sample;
    struct tune *t;
    uint64_t id = 1;

    assert_int_equal(tune_new(&cfg, &t), 0);
    tune_applied(t);
    for (;; id++) {
        tune_tensor(t, id, 1);
        if (tune_batch(t, id * 1000, &sample))
            break;
        assert_true(id < 1000000);
    }
    assert_true(fabs(sample.bytes_per_s - 1e6) < 1);
    tune_free(t);
}

UNIT_TEST(nonsense_is_refused)
{
    struct tune_config cfg = tune_config_make();
    struct tune *t;

    cfg.n_steps = 0;
    assert_int_equal(tune_new(&cfg, &t), -EINVAL);
    cfg = tune_config_make();
    cfg.n_samples = 0;
    assert_int_equal(tune_new(&cfg, &t), -EINVAL);
    cfg = tune_config_make();
    mem_fail_after(0);
    assert_int_equal(tune_new(&cfg, &t), -ENOMEM);
    mem_fail_after(-1);
    tune_free(NULL);
}

/* --- text --- */

UNIT_TEST(what_is_written_is_read_back)
{
    const struct tune_file f = {16, 2, {4 * MB, 250000, 131072, 65536}};
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct tune_file got;
    struct err err = ERR_INIT;
    char copy[TUNE_FILE_MAX];

    strbuf_init(&text, TUNE_FILE_MAX);
    tune_file_write(&f, &text);
    assert_string_equal(strbuf_str(&text),
                        "# found by HOROVOD_AUTOTUNE=1, used by HVD_AUTOTUNE_FILE\n"
                        "version=1\nranks=16\nhosts=2\nfusion_threshold=4194304\n"
                        "cycle_time_us=250\ntcp_whole_bytes=131072\n"
                        "tcp_chunk_bytes=65536\n");
    (void)snprintf(copy, sizeof(copy), "%s", strbuf_str(&text));
    assert_int_equal(tune_file_read("f", copy, &got, &err), 0);
    assert_memory_equal(&got, &f, sizeof(f));
    for (size_t n = 0; n + 1 < text.n; n++) { /* cut anywhere */
        memcpy(copy, text.p, n);
        copy[n] = 0;
        if (tune_file_read("f", copy, &got, &err) == 0)
            assert_true(n > text.n - 8); /* only digits of the last number are gone */
    }
}

UNIT_TEST(bad_lines_are_named)
{
#define GOOD                                                                           \
    "version=1\nranks=4\nhosts=2\nfusion_threshold=1\ncycle_time_us=2\n"               \
    "tcp_whole_bytes=3\n"
    static const struct {
        const char *text, *why;
        int rc;
    } rows[] = {
        {GOOD "tcp_chunk_bytes=4\n", "", 0},
        {GOOD "\n# so\ntcp_chunk_bytes=4", "", 0},
        {GOOD, "f: has no tcp_chunk_bytes", -EINVAL},
        {GOOD "tcp_chunk_bytes=many\n",
         "f, line 7: tcp_chunk_bytes: \"many\" is not a number from 0 to 1099511627776",
         -EINVAL},
        {GOOD "tcp_chunk_bytes=-1\n",
         "f, line 7: tcp_chunk_bytes: \"-1\" is not a number from 0 to 1099511627776",
         -EINVAL},
        {"version=1\nranks=0\n",
         "f, line 2: ranks: \"0\" is not a number from 1 to "
         "4294967295",
         -ERANGE},
        {"version=1\ncycle_time_us=10000001\n",
         "f, line 2: cycle_time_us: \"10000001\" is not a number from 0 to 10000000",
         -ERANGE},
        {"version=1\nversion=1\n", "f, line 2: version a second time", -EINVAL},
        {"hello\n", "f, line 1: \"hello\" is not key=value", -EINVAL},
        {"colour=3\n",
         "f, line 1: \"colour\" must be one of: version, ranks, hosts, "
         "fusion_threshold, cycle_time_us, tcp_whole_bytes, tcp_chunk_bytes",
         -EINVAL},
        {"version=2\nranks=4\nhosts=2\nfusion_threshold=1\ncycle_time_us=2\n"
         "tcp_whole_bytes=3\ntcp_chunk_bytes=4\n",
         "f: version 2, this library writes 1", -EPROTO},
        {"", "f: has no version", -EINVAL},
    };
#undef GOOD

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[TUNE_FILE_MAX];
        struct tune_file got;
        struct err err = ERR_INIT;

        (void)snprintf(text, sizeof(text), "%s", rows[i].text);
        assert_int_equal(tune_file_read("f", text, &got, &err), rows[i].rc);
        assert_string_equal(err.text, rows[i].why);
    }
}

UNIT_TEST(the_log_has_units_of_horovod)
{
    const struct tune_sample s = {{4 * MB, 2500000, 8192, 0}, 439.25e6, true};
    CLEANUP(strbuf_release) struct strbuf text = {0};

    strbuf_init(&text, 1000);
    tune_log_head(&text);
    tune_log_line(7, &s, &text);
    assert_string_equal(strbuf_str(&text),
                        "sample,warmup,cycle_time_ms,tensor_fusion_threshold,"
                        "tcp_whole_bytes,tcp_chunk_bytes,score\n"
                        "7,1,2.5,4,8192,0,439.250\n");
}

UNIT_MAIN(NULL, NULL)
