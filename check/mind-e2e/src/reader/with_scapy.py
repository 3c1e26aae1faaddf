"""Reads a capture file with Scapy and prints what it says of each RoCEv2 packet, as a JSON object a line.

Scapy's module knows the BTH and the AETH of acknowledgements. The other headers of RDMA are described here in its
terms, from the InfiniBand specification; coherence is left alone.
"""

import json
import sys

from scapy.contrib.roce import AETH, BTH
from scapy.fields import IntField, LongField
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_layers
from scapy.utils import PcapReader


class RETH(Packet):
    name = "RETH"
    fields_desc = [LongField("va", 0), IntField("rkey", 0), IntField("dmalen", 0)]


class ImmDt(Packet):
    name = "ImmDt"
    fields_desc = [IntField("value", 0)]


class AtomicETH(Packet):
    name = "AtomicETH"
    fields_desc = [LongField("va", 0), IntField("rkey", 0), LongField("swap_or_add", 0), LongField("compare", 0)]


class AtomicAckETH(Packet):
    name = "AtomicAckETH"
    fields_desc = [LongField("value", 0)]


READ, READ_RESPONSE, WRITE, ATOMIC_ACK, CMP_SWAP, FETCH_ADD = 0x0C, 0x10, 0x0B, 0x12, 0x13, 0x14

for opcode in (READ, WRITE):
    bind_layers(BTH, RETH, opcode=opcode)
for opcode in (READ_RESPONSE, ATOMIC_ACK):
    bind_layers(BTH, AETH, opcode=opcode)
for opcode in (CMP_SWAP, FETCH_ADD):
    bind_layers(BTH, AtomicETH, opcode=opcode)


def fields(packet):
    """What Scapy says of a packet, by the names of `reader`."""
    bth = packet[BTH]
    said = {
        "opcode": bth.opcode,
        "qp": bth.dqpn,
        "psn": bth.psn,
        "attempt": bth.resv7,
        "length": packet[UDP].len - 8,
    }
    if RETH in packet:
        reth = packet[RETH]
        said |= {"va": reth.va, "domain": reth.rkey, "bytes": reth.dmalen}
        if bth.opcode == WRITE:
            said["immediate"] = ImmDt(bytes(reth.payload)).value
    if AtomicETH in packet:
        atomic = packet[AtomicETH]
        said |= {"va": atomic.va, "domain": atomic.rkey}
        said |= {"swap_or_add": atomic.swap_or_add, "compare": atomic.compare}
    if AETH in packet:
        aeth = packet[AETH]
        said |= {"syndrome": aeth.syndrome, "msn": aeth.msn}
        if bth.opcode == ATOMIC_ACK:
            said["original"] = AtomicAckETH(bytes(aeth.payload)).value
    return said


with PcapReader(sys.argv[1]) as capture:
    for captured in capture:
        if BTH in captured:
            print(json.dumps(fields(captured)))
