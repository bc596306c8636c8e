/* A stand-in for the NVIDIA driver's libnvidia-ml.so.1, for tests: it answers what a text file says.
 *
 * Each line of the file that STANDIN_NVML names is a key, a space and a value. It is read again at each call,
 * so a test changes the machine by replacing the file. Keys of GPU 3 begin with "3."; what is not there is not
 * supported, as with an old board. As with the real one, what was lost stays lost for as long as somebody has
 * the library open, and how many GPUs there are is counted when the first one opens it.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15 };
enum { GPUS = 16, MIGS = 8 };

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned cores, copy, decoder, encoder, jpeg, ofa, gpu_slices, compute_slices;
                 unsigned long long memory_mib; } Sizes;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { uint32_t field, scope; int64_t time, latency; int type, result;
                 union { unsigned number; unsigned long long bits; } value; } Field;
typedef struct { void *gpu; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;

static char gpus[GPUS], migs[GPUS][MIGS], event_set;
static int users, count, is_lost[GPUS], is_heard[GPUS];
static unsigned delivered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Copies the value of a key and returns 1, or returns 0. */
static int text(const char *key, char *value, unsigned size) {
    const char *path = getenv("STANDIN_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    size_t length = strlen(key);
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static long number(const char *key, long otherwise) {
    char value[64];
    return text(key, value, sizeof value) ? strtol(value, NULL, 0) : otherwise;
}

static long hanging(void) { return number("hangs", 0); }

static void pause_ms(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Makes "3.name" of a GPU's handle and "3.mig.0.name" of an instance's; -1 for what is neither. */
static int key_of(void *handle, const char *name, char *key, unsigned size) {
    char *at = handle;
    if (at >= gpus && at < gpus + GPUS) {
        snprintf(key, size, "%d.%s", (int)(at - gpus), name);
        return (int)(at - gpus);
    }
    if (at >= migs[0] && at < migs[0] + sizeof migs) {
        int index = (int)(at - migs[0]);
        snprintf(key, size, "%d.mig.%d.%s", index / MIGS, index % MIGS, name);
        return index / MIGS;
    }
    return -1;
}

static int state_of(int index) {
    char key[32];
    if (users == 0) return UNINITIALIZED;
    if (number("fails", 0)) return (int)number("fails", 0);
    snprintf(key, sizeof key, "%d.fails", index);
    if (number(key, 0) == LOST) is_lost[index] = 1;
    return is_lost[index] ? LOST : (int)number(key, 0);
}

static int ask_text(void *handle, const char *name, char *value, unsigned size) {
    char key[64];
    int index = key_of(handle, name, key, sizeof key);
    if (index < 0) return INVALID;
    if (state_of(index)) return state_of(index);
    return text(key, value, size) ? OK : NOT_SUPPORTED;
}

static int ask_number(void *handle, const char *name, unsigned *value) {
    char digits[64];
    int result = ask_text(handle, name, digits, sizeof digits);
    if (result == OK) *value = (unsigned)strtoul(digits, NULL, 0);
    return result;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (number("init", 0)) return (int)number("init", 0);
    pthread_mutex_lock(&lock);
    if (users++ == 0) {
        count = (int)number("count", 0);
        memset(is_lost, 0, sizeof is_lost);
    }
    pthread_mutex_unlock(&lock);
    return OK;
}

int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    if (users) users--;
    pthread_mutex_unlock(&lock);
    return OK;
}

const char *nvmlErrorString(int result) { (void)result; return "an error of the stand-in"; }

int nvmlDeviceGetCount_v2(unsigned *value) {
    while (hanging()) pause_ms(5);
    if (number("fails", 0)) return (int)number("fails", 0);
    *value = (unsigned)count;
    return users ? OK : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index >= (unsigned)count) return INVALID;
    *handle = &gpus[index];
    return state_of((int)index);
}

int nvmlDeviceGetUUID(void *gpu, char *value, unsigned size) { return ask_text(gpu, "uuid", value, size); }
int nvmlDeviceGetName(void *gpu, char *value, unsigned size) { return ask_text(gpu, "name", value, size); }
int nvmlDeviceGetSerial(void *gpu, char *value, unsigned size) { return ask_text(gpu, "serial", value, size); }
int nvmlDeviceGetMinorNumber(void *gpu, unsigned *value) { return ask_number(gpu, "minor", value); }
int nvmlDeviceGetGpuInstanceId(void *mig, unsigned *value) { return ask_number(mig, "gi", value); }
int nvmlDeviceGetComputeInstanceId(void *mig, unsigned *value) { return ask_number(mig, "ci", value); }

int nvmlDeviceGetPciInfo_v3(void *gpu, Pci *value) {
    memset(value, 0, sizeof *value);
    return ask_text(gpu, "bus", value->bus_id, sizeof value->bus_id);
}

int nvmlDeviceGetMigMode(void *gpu, unsigned *current, unsigned *pending) {
    *pending = 0;
    return ask_number(gpu, "mig", current);
}

int nvmlDeviceGetMaxMigDeviceCount(void *gpu, unsigned *value) { (void)gpu; *value = MIGS; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *gpu, unsigned index, void **handle) {
    char value[128];
    *handle = &migs[(char *)gpu - gpus][index];
    return ask_text(*handle, "uuid", value, sizeof value) == OK ? OK : NOT_FOUND;
}

int nvmlDeviceGetAttributes_v2(void *mig, Sizes *value) {
    unsigned mib;
    memset(value, 0, sizeof *value);
    if (ask_number(mig, "mib", &mib)) return NOT_SUPPORTED;
    value->memory_mib = mib;
    ask_number(mig, "gpu_slices", &value->gpu_slices);
    return ask_number(mig, "compute_slices", &value->compute_slices);
}

int nvmlDeviceGetMemoryInfo(void *gpu, Memory *value) {
    unsigned mib = 0;
    int result = ask_number(gpu, "mib", &mib);
    memset(value, 0, sizeof *value);
    value->total = (unsigned long long)mib << 20;
    return result;
}

int nvmlDeviceGetRemappedRows(void *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    *corrected = *uncorrected = *pending = 0;
    return ask_number(gpu, "remapping_failed", failed);
}

int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *value) {
    char name[32], end[64];
    unsigned links;
    if (ask_number(gpu, "links", &links)) return NOT_SUPPORTED;
    if (link >= links) return INVALID;
    snprintf(name, sizeof name, "link.%u", link);
    *value = ask_text(gpu, name, end, sizeof end) == OK;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *gpu, unsigned link, Pci *value) {
    char name[32];
    memset(value, 0, sizeof *value);
    snprintf(name, sizeof name, "link.%u", link);
    return ask_text(gpu, name, value->bus_id, sizeof value->bus_id);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetNvLinkRemoteDeviceType(void *gpu, unsigned link, unsigned *value) {
    (void)gpu, (void)link;
    *value = 2;
    return OK;
}

int nvmlDeviceGetFieldValues(void *gpu, int length, Field *fields) {
    for (int i = 0; i < length; i++)
        fields[i].result = fields[i].field == 230 ? ask_number(gpu, "action", &fields[i].value.number) : INVALID;
    return OK;
}
#endif

int nvmlDeviceGetSupportedEventTypes(void *gpu, unsigned long long *value) {
    unsigned types = 0;
    int result = ask_number(gpu, "events", &types);
    *value = types;
    return result;
}

int nvmlEventSetCreate(void **set) { *set = &event_set; return OK; }

int nvmlEventSetFree(void *set) {
    (void)set;
    memset(is_heard, 0, sizeof is_heard);
    return OK;
}

int nvmlDeviceRegisterEvents(void *gpu, unsigned long long types, void *set) {
    (void)types, (void)set;
    is_heard[(char *)gpu - gpus] = 1;
    return OK;
}

/* The value of "event" is: number index type data gpu-instance compute-instance. Each is given once. */
int nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
    char value[128];
    unsigned sequence, index;
    (void)set;
    for (unsigned waited = 0; waited < milliseconds; waited += 5) {
        if (number("fails", 0)) return (int)number("fails", 0);
        if (text("event", value, sizeof value)
            && sscanf(value, "%u %u %lli %lli %u %u", &sequence, &index, (long long *)&event->type,
                      (long long *)&event->data, &event->gpu_instance, &event->compute_instance) == 6
            && sequence > delivered && is_heard[index]) {
            delivered = sequence;
            event->gpu = &gpus[index];
            return OK;
        }
        pause_ms(5);
    }
    return TIMEOUT;
}
