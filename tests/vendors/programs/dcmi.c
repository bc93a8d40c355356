/* Stands in for libdcmi.so: one card with two chips, the structures as dcmi_interface_api.h has them. */
#include <string.h>

struct chip { unsigned char type[32], name[32], version[32]; unsigned int aicores; unsigned char npu_name[32]; };
struct place { unsigned int device_id, vendor_id, subvendor_id, subdevice_id; int domain; unsigned int bus, device, function; unsigned char reserve[32]; };
struct hbm { unsigned long long size; unsigned int frequency; unsigned long long usage; int temperature; unsigned int rate; };
struct ecc { unsigned int enable, single, twice, total_single, total_double, si, di, sn, dn; };

int dcmi_init(void) { return 0; }
int dcmi_get_card_list(int *count, int *cards, int size) { *count = size > 0; cards[0] = 9; return 0; }
int dcmi_get_device_num_in_card(int card, int *chips) { *chips = card == 9 ? 2 : 0; return 0; }
int dcmi_get_device_logic_id(int *logic, int card, int chip) { *logic = card == 9 ? chip : -1; return 0; }
int dcmi_get_device_phyid_from_logicid(unsigned int logic, unsigned int *physical) { *physical = logic + 4; return 0; }
int dcmi_get_device_chip_info_v2(int card, int chip, struct chip *info) { (void)card; (void)chip; strcpy((char *)info->npu_name, "910B3"); return 0; }
int dcmi_get_device_pcie_info_v2(int card, int chip, struct place *p) { (void)card; p->domain = 0; p->bus = 0xc1 + chip; p->device = 0; p->function = 0; return 0; }
int dcmi_get_device_hbm_info(int card, int chip, struct hbm *h) { (void)card; h->size = 65536; h->usage = 3300 + chip; return 0; }
int dcmi_get_device_utilization_rate(int card, int chip, int type, unsigned int *rate) { (void)card; *rate = type == 2 ? 33 + chip : 99; return 0; }
int dcmi_get_device_temperature(int card, int chip, int *t) { (void)card; *t = 41 + chip; return 0; }
int dcmi_get_device_power_info(int card, int chip, int *p) { (void)card; *p = 1626; return chip ? -8255 : 0; }
int dcmi_get_device_health(int card, int chip, unsigned int *h) { (void)card; *h = chip ? 2 : 0; return 0; }
int dcmi_get_device_ecc_info(int card, int chip, int type, struct ecc *e) { (void)card; memset(e, 0, sizeof *e); e->enable = 1; e->twice = type == 2 ? chip : 77; return 0; }
int dcmi_get_device_errorcode_v2(int card, int chip, int *count, unsigned int *codes, unsigned int size) { (void)card; *count = size ? chip : 0; codes[0] = 0x80C98001; return 0; }
int dcmi_get_topo_info_by_device_id(int a, int b, int c, int d, int *kind) { (void)a; (void)b; (void)c; (void)d; *kind = 6; return 0; }
int dcmi_get_driver_version(char *text, unsigned int size) { strncpy(text, "25.5.2", size); return 0; }
