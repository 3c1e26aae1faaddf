-- Wireshark and tshark: what MIND on eBPF says behind a RoCEv2 base transport header (BTH).
--
-- Wireshark knows RoCEv2, with which pages are read, written back and acknowledged. Coherence messages have opcodes of
-- the manufacturer's range (0xC0 to 0xC6), of which it shows the BTH alone: this post-dissector adds the rest. The
-- layout is that of mind-common/src/wire.

local mind = Proto("mind", "MIND coherence")

local messages = {
  [0xc0] = "ACQUIRE",
  [0xc1] = "UPGRADE",
  [0xc2] = "INVALIDATE",
  [0xc3] = "INVALIDATE-ACK",
  [0xc4] = "INVALIDATE-ACK-FETCH",
  [0xc5] = "FORWARD",
  [0xc6] = "FAN-OUT",
}
local targets = { [0] = "invalid", [1] = "shared" }
local sources = { [0] = "grant", [1] = "fetch", [2] = "forward" }

local pages = { " page", " pages" }
local bytes = { " byte", " bytes" }

local f = {
  message = ProtoField.uint8("mind.message", "Message", base.HEX, messages),
  blade = ProtoField.uint8("mind.blade", "Compute blade of the connection", base.DEC),
  incarnation = ProtoField.uint16("mind.incarnation", "Incarnation of that blade", base.DEC),
  attempt = ProtoField.uint8("mind.attempt", "Attempts that went unanswered (FORWARD: way through the directory)", base.DEC),
  va = ProtoField.uint64("mind.va", "Virtual address", base.HEX),
  domain = ProtoField.uint32("mind.domain", "Protection domain", base.DEC),
  len = ProtoField.uint32("mind.len", "Length", base.UNIT_STRING, bytes),
  episode = ProtoField.uint32("mind.episode", "Episode of the slot", base.DEC),
  pending = ProtoField.uint32("mind.pending", "Blades still to answer", base.HEX),
  version = ProtoField.uint32("mind.version", "Version of the page", base.DEC),
  order = ProtoField.uint8("mind.order", "Order of the region (log2 of its pages)", base.DEC),
  region = ProtoField.uint64("mind.region", "First address of the region", base.HEX),
  requester = ProtoField.uint8("mind.requester", "Requesting blade", base.DEC),
  target = ProtoField.uint8("mind.target", "State left to the blade", base.DEC, targets),
  source = ProtoField.uint8("mind.source", "How the requester gets the page", base.DEC, sources),
  dropped = ProtoField.uint16("mind.dropped", "Dropped in vain", base.UNIT_STRING, pages),
  flushed = ProtoField.uint16("mind.flushed", "Written back", base.UNIT_STRING, pages),
  slot = ProtoField.uint32("mind.slot", "Slot of the directory", base.DEC),
}
mind.fields = f

local short = ProtoExpert.new("mind.short", "Shorter than its header", expert.group.MALFORMED, expert.severity.ERROR)
mind.experts = { short }

local opcode_of = Field.new("infiniband.bth.opcode")
local udp_length_of = Field.new("udp.length")

local BTH, RETH, CETH = 12, 16, 32
local PAGE = 4096
local REGION_ORDER_MAX = 9

-- What ACQUIRE and UPGRADE ask for: a RETH as in RDMA's own requests.
local function request(tree, header)
  tree:add(f.va, header(0, 8))
  tree:add(f.domain, header(8, 4))
  tree:add(f.len, header(12, 4))
  return string.format("va=0x%s domain=%u", header(0, 8):uint64():tohex(), header(8, 4):uint())
end

-- The region that an address is in.
local function region(va, order)
  local size = UInt64.new(PAGE) * UInt64.new(2 ^ order)
  return va - va % size
end

-- What INVALIDATE asks and its answers echo: the coherence header.
local function invalidation(tree, header)
  local va, order = header(0, 8):uint64(), header(20, 1):uint()
  tree:add(f.va, header(0, 8))
  tree:add(f.episode, header(8, 4))
  tree:add(f.pending, header(12, 4))
  tree:add(f.version, header(16, 4))
  tree:add(f.order, header(20, 1))
  if order <= REGION_ORDER_MAX then
    tree:add(f.region, header(0, 8), region(va, order)):set_generated()
  end
  tree:add(f.requester, header(21, 1))
  tree:add(f.target, header(22, 1))
  tree:add(f.source, header(23, 1))
  tree:add(f.dropped, header(24, 2))
  tree:add(f.flushed, header(26, 2))
  tree:add(f.slot, header(28, 4))
  return string.format(
    "va=0x%s order=%u for=c%u leaves=%s source=%s",
    va:tohex(),
    order,
    header(21, 1):uint(),
    targets[header(22, 1):uint()] or "?",
    sources[header(23, 1):uint()] or "?"
  )
end

function mind.dissector(frame, packet, root)
  local opcode = opcode_of()
  local name = opcode and messages[opcode.value]
  if not name then
    return
  end
  local start = opcode.offset
  -- Up to the end of the datagram: what Wireshark takes for a checksum (ICRC) behind it is ours, too.
  local length = math.min(udp_length_of().value - 8, frame:len() - start)
  local datagram = frame(start, length):tvb()

  local is_request = opcode.value <= 0xc1
  local need = BTH + (is_request and RETH or CETH)
  local tree = root:add(mind, datagram(0, math.min(length, need)))
  tree:append_text(": " .. name)
  tree:add(f.message, datagram(0, 1))
  if length < need then
    tree:add_proto_expert_info(short)
    return
  end
  tree:add(f.incarnation, datagram(5, 2))
  tree:add(f.blade, datagram(7, 1))
  tree:add(f.attempt, datagram(8, 1), datagram(8, 1):bitfield(1, 7))

  local header = datagram(BTH, need - BTH):tvb()
  local said = is_request and request(tree, header) or invalidation(tree, header)
  packet.cols.info = "MIND " .. name .. " " .. said
end

register_postdissector(mind)
