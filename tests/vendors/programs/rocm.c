/* Stands in for librocm_smi64.so: two devices, the second of which has neither power nor a limit of its own. */
#include <stdint.h>
#include <string.h>

int rsmi_init(uint64_t flags) { return flags != 0; }
int rsmi_num_monitor_devices(uint32_t *count) { *count = 2; return 0; }
int rsmi_dev_pci_id_get(uint32_t i, uint64_t *id) { *id = (uint64_t)1 << 32 | (0x83 + i) << 8 | 2 << 3 | 1; return 0; }
int rsmi_dev_unique_id_get(uint32_t i, uint64_t *id) { *id = 0xabc0 + i; return 0; }
int rsmi_dev_name_get(uint32_t i, char *name, size_t size) { (void)i; strncpy(name, "AMD Instinct MI210", size); return 0; }
int rsmi_dev_memory_total_get(uint32_t i, int type, uint64_t *n) { (void)i; *n = type == 0 ? 64ull << 30 : 1; return 0; }
int rsmi_dev_memory_usage_get(uint32_t i, int type, uint64_t *n) { *n = type == 0 ? (uint64_t)(i + 1) << 20 : 1; return 0; }
int rsmi_dev_busy_percent_get(uint32_t i, uint32_t *busy) { *busy = 40 + i; return 0; }
int rsmi_dev_power_ave_get(uint32_t i, uint32_t sensor, uint64_t *uw) { (void)sensor; *uw = 91500000; return i ? 2 : 0; }
int rsmi_dev_power_cap_get(uint32_t i, uint32_t sensor, uint64_t *uw) { (void)sensor; *uw = i ? 0 : 300000000; return 0; }
int rsmi_dev_pci_replay_counter_get(uint32_t i, uint64_t *n) { *n = 7 + i; return 0; }
int rsmi_dev_temp_metric_get(uint32_t i, uint32_t sensor, int metric, int64_t *t) {
  (void)metric;
  *t = sensor == 1 ? 61000 : 45000;
  return i && sensor == 0 ? 2 : 0; /* the second has no edge sensor */
}
int rsmi_topo_get_link_type(uint32_t a, uint32_t b, uint64_t *hops, int *type) { *hops = 1; *type = a != b ? 2 : 0; return 0; }
int rsmi_version_str_get(int component, char *text, uint32_t size) { (void)component; strncpy(text, "6.10.5", size); return 0; }
