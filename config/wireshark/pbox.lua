-- SPDX-License-Identifier: BSD-3-Clause
-- Copyright (c) 2026 the PBox authors
--
-- The PBox protocol (protocol.md) for Wireshark and tshark, 4.0 or later:
--
--   tshark -X lua_script:pbox.lua -r capture.pcap -Y pbox
--   cp pbox.lua ~/.local/lib/wireshark/plugins/
--
-- Frames are found by UDP port (preference) or, elsewhere, by their look. What a receiver would drop, and
-- under which name (R2.1, R3.3), is `pbox.drop`. Answers carry the ts of their request, by which both are
-- joined; contributions of all workers to one round of one fragment are joined by their numbers.

local MAGIC, VERSION, HEADER, TAG, FIRST_DATA = 0xB5, 1, 62, 16, 0x20
local CRC_SHORT = 1500 -- bytes of payload that are verified by default: CRCs in Lua take 0.1 us a byte
local NONE32 = 0xFFFFFFFF

local pbox = Proto("pbox", "PBox parameter server")

-- ---- names ---------------------------------------------------------------------------------------

local TYPE = {
	[0x01] = "HELLO", [0x02] = "RETRY", [0x03] = "JOIN", [0x04] = "WELCOME", [0x05] = "DECLARE",
	[0x06] = "DECLARED", [0x07] = "MAP", [0x08] = "MAPPED", [0x09] = "SET", [0x0A] = "SET_OK",
	[0x0B] = "STATUS", [0x0C] = "STATUS_OK", [0x0D] = "LEAVE", [0x0E] = "LEFT", [0x0F] = "ERROR",
	[0x10] = "PING", [0x11] = "PONG", [0x12] = "NOT_READY", [0x20] = "PUSH", [0x21] = "PUSH_OK",
	[0x22] = "PULL", [0x23] = "RESULT", [0x24] = "PUSHPULL", [0x25] = "WAIT", [0x26] = "INIT",
	[0x27] = "INIT_OK", [0x28] = "RESTORE", [0x29] = "RESTORE_OK",
	[0x2B] = "FETCH", [0x2C] = "FETCHED",
}
local ANSWER = {} -- types that the box answers with
for _, t in ipairs({ 0x02, 0x04, 0x06, 0x08, 0x0A, 0x0C, 0x0E, 0x0F, 0x11, 0x12, 0x21, 0x23, 0x25, 0x27, 0x29 }) do
	ANSWER[t] = true
end
local FORMAT = { [0] = "none", "fp32", "bf16", "fp16", [16] = "int8", [17] = "int4", [18] = "int2",
	[19] = "mxfp8", [20] = "mxfp4" }
local ELEMENT = { 4, 2, 2 } -- bytes
local MODE = { [0] = "allreduce", "optimiser" }
local OP = { [0] = "sum", "mean", "sample_mean", "weighted_mean" }
local OPTIMISER = { [0] = "none", "sgd", "momentum", "nesterov", "adam", "adamw" }
local RESTORE = { [0] = "done", "noted", "give", "lost" }
local HYPER = { "lr", "momentum", "dampening", "weight_decay", "beta1", "beta2", "eps", "clip_value", "steps" }
local MEMBER = { [0] = "absent", "joined", "left", "silent" }
local POLICY = { [0] = "wait", "shrink" }
local ERROR = { [0] = "NONE", "VERSION", "COOKIE", "NO_JOB", "SECRET", "WORKERS", "WORKER_TAKEN", "FULL", "SESSION",
	"MISMATCH", "BAD_REQUEST", "SET_LATE", "SET_CONFLICT", "SET_ORDER", "NO_LR", "NO_MEMORY", "SHUTDOWN", "LOST",
	"RUNNING", "RUN_ENDED" }
local FLAG = {
	{ 0x0001, "LAST", "the last (in version 1: only) partial contribution of the worker to this round" },
	{ 0x0002, "RETX", "the frame repeats an earlier one" },
	{ 0x0004, "ECE", "the sender has seen ECN CE on a datagram of the receiver" },
	{ 0x0008, "ZERO", "all elements are zero, and the payload is left out" },
	{ 0x0010, "AUTH", "a 16-byte tag follows the payload" },
	{ 0x0020, "CUT", "PULL: answer from the snapshot of the last round boundary (reserved)" },
	{ 0x0040, "HAVE", "WAIT: the box holds the contribution. RESTORE: the sender can give the payload" },
	{ 0x0080, "LATEST", "PULL: answer from the current version, whatever round says" },
}
local KNOWN_FLAGS = 0xFF

-- ---- layouts -------------------------------------------------------------------------------------
-- Rows are { name, kind, label, help, values }. The field of a row is pbox.NAME in the header and
-- pbox.MESSAGE.NAME in a payload; a row without a name is room for later.

local SIZE = { u8 = 1, u16 = 2, u32 = 4, u64 = 8, x32 = 4, x64 = 8, x16 = 2, f64 = 8, ipv4 = 4 }

local HEADER_ROWS = {
	{ "magic", "x8", "Magic", "0xB5" },
	{ "version", "u8", "Version", "of the protocol" },
	{ "type", "x8", "Type", "what the frame is (section 3)", TYPE },
	{ "prio", "u8", "Priority", "of the sender: 0 (first) to 255" },
	{ "flags", "x16", "Flags", "section 2" },
	{ "token", "x64", "Token", "session token given in WELCOME; 0 before it" },
	{ "job", "u16", "Job", "job number given in WELCOME" },
	{ "worker", "u16", "Worker", "worker number; in frames of the box that of the addressee" },
	{ "incarnation", "x32", "Incarnation", "of the box: changes with each of its starts" },
	{ "chunk", "u32", "Chunk or request id", "data frames: chunk id; control frames: request id" },
	{ "frag", "u16", "Fragment", "index of the fragment in its chunk" },
	{ "length", "u16", "Length", "bytes of payload" },
	{ "round", "u32", "Round", "of the fragment; in RESULT and RESTORE a version" },
	{ "base", "u32", "Base", "base version; INIT: element offset; RESULT: current version" },
	{ "map_epoch", "u16", "Map epoch", "generation of the chunk map" },
	{ "served", "u16", "Served", "answers: microseconds that the box spent on the frame" },
	{ "format", "u8", "Format", "of the payload's elements", FORMAT },
	{ "fmt_arg", "u8", "Format argument", "log2 of the block; 0 for fp32, bf16 and fp16" },
	{ "aux", "x16", "Aux", "requests: learning-rate multiplier (bf16); answers: contributors, or a code" },
	{ "weight", "u32", "Weight", "samples of this contribution, or of all; WAIT: first missing worker" },
	{ "ts", "u32", "Time stamp", "requests: sender's clock in microseconds; answers: that of the request" },
	{ "held", "u32", "Held", "answers: microseconds that the frame waited for other workers" },
	{ "crc", "x32", "CRC32C", "of the payload and the header before it" },
}
SIZE.x8 = 1

local TEXT = { { "text_len", "u16", "Text length", "bytes" }, { nil, 2 }, { "text", "text", "Text", "for people" } }
local function with(rows, more)
	for _, r in ipairs(more) do rows[#rows + 1] = r end
	return rows
end

local LAYOUT = {
	hello = { { "min_version", "u8", "Lowest version" }, { "max_version", "u8", "Highest version" }, { nil, 62 } },
	retry = { { "cookie", "x64", "Cookie", "to be sent back in JOIN" }, { "incarnation", "x32", "Incarnation" },
		{ nil, 4 } },
	join = {
		{ "cookie", "x64", "Cookie", "of RETRY" }, { "nonce", "x64", "Nonce", "chosen once per session" },
		{ "worker", "u16", "Worker", "number wanted; 65535: any" }, { "workers", "u16", "Workers", "of the job" },
		{ "mtu", "u16", "MTU", "IP MTU of the path" }, { "window", "u16", "Window", "frames that fit the receiver" },
		{ "policy", "u8", "Policy", "for dead workers", POLICY },
		{ "auth", "u8", "Auth", "1: the worker can send and check tags" }, { nil, 2 },
		{ "lease_ms", "u32", "Lease", "milliseconds; 0: the box's default" },
		{ "job", "strz64", "Job", "name" }, { "host", "str64", "Host", "name of the worker's" },
		{ "proof", "bytes32", "Proof", "HMAC-SHA-256 with the job's secret" },
		{ "run", "bytes16", "Run", "identity; zeros: none" },
		{ "number", "x64", "Run number", "that of WELCOME; 0: the worker begins here" }, { nil, 296 } },
	welcome = {
		{ "token", "x64", "Token" }, { "nonce", "x64", "Nonce", "echo of JOIN's" }, { "job", "u16", "Job", "number" },
		{ "worker", "u16", "Worker", "number" }, { "workers", "u16", "Workers", "of the job" },
		{ "endpoints", "u16", "Endpoints", "count" }, { "incarnation", "x32", "Incarnation" },
		{ "lease_ms", "u32", "Lease", "milliseconds" }, { "mtu", "u16", "MTU", "of the box's ports" },
		{ "window", "u16", "Window", "frames in flight per endpoint" },
		{ "flags", "x32", "Flags", "bit 0: AUTH, frames of the session have tags; bit 5: INSECURE, the job has no secret" },
		{ "proof", "bytes32", "Proof", "HMAC-SHA-256 with the job's secret" },
		{ "number", "x64", "Run number", "to be told when the worker comes again" } },
	endpoint = { { "ipv4", "ipv4", "Address" }, { "udp", "u16", "UDP port" }, { nil, 2 } },
	declare = {
		{ "table", "u32", "Table" }, { "tensors", "u32", "Tensors", "of the whole table" },
		{ "first", "u32", "First", "tensor of this page" }, { "count", "u16", "Count", "tensors in this page" },
		{ "mode", "u8", "Mode", "", MODE }, { "op", "u8", "Operation", "", OP },
		{ "optimiser", "u8", "Optimiser", "", OPTIMISER }, { "push_format", "u8", "Push format", "", FORMAT },
		{ "pull_format", "u8", "Pull format", "", FORMAT }, { nil, 1 },
		{ "flags", "x32", "Flags", "bit 0: RESTORE, the sender holds versions of the table; bit 1: CONTINUE, the run may have begun" } },
	tensor = { { "elements", "u64", "Elements" }, { "group", "u16", "Group", "of hyper-parameters" },
		{ "name_len", "u16", "Name length", "bytes" }, { "name", "text", "Name" } },
	declared = { { "table", "u32", "Table" }, { "first", "u32", "First" }, { "count", "u16", "Count" }, { nil, 2 } },
	map = { { "table", "u32", "Table" }, { "first", "u32", "First", "chunk asked for" } },
	not_ready = with({
		{ "expected", "u16", "Expected", "workers" }, { "joined", "u16", "Joined", "workers" },
		{ "declared", "u16", "Declared", "workers that have declared the table" },
		{ "first_missing", "u16", "First missing", "worker" },
		{ "silent_ms", "u32", "Silent", "milliseconds; 4294967295: never seen" } }, TEXT),
	mapped = {
		{ "table", "u32", "Table" }, { "chunks", "u32", "Chunks", "of the table" },
		{ "first", "u32", "First", "chunk of this page" }, { "count", "u16", "Count", "chunks in this page" }, { nil, 2 },
		{ "frag_elements", "u32", "Fragment elements" }, { "first_chunk_id", "u32", "First chunk id" } },
	chunk = { { "chunk_id", "u32", "Chunk id" }, { "endpoint", "u16", "Endpoint", "index in WELCOME" },
		{ "segments", "u16", "Segments", "count" }, { "elements", "u32", "Elements" },
		{ "version", "u32", "Version", "the lowest of its fragments" } },
	segment = { { "offset", "u64", "Offset", "elements into the tensor" }, { "tensor", "u32", "Tensor", "index" },
		{ "elements", "u32", "Elements" } },
	set = { { "table", "u32", "Table" }, { "group", "u16", "Group", "65535: all" }, { "count", "u16", "Count" },
		{ "from_round", "u32", "From round" }, { nil, 4 } },
	param = { { "id", "u16", "Parameter", "", HYPER }, { nil, 6 }, { "value", "f64", "Value" } },
	status = { { "first", "u16", "First", "worker asked for" }, { nil, 2 } },
	status_ok = with({
		{ "workers", "u16", "Workers" }, { "joined", "u16", "Joined", "workers" }, { "first", "u16", "First", "worker" },
		{ "count", "u16", "Count", "workers in this page" }, { "tables", "u32", "Tables" },
		{ "max_round", "u32", "Highest round" } }, TEXT),
	member = { { "worker", "u16", "Worker" }, { "state", "u8", "State", "", MEMBER },
		{ "reason", "u8", "Reason", "of who has left: 1 itself, 2 ended by the operator, 3 its number was taken, 4 it was refused" },
		{ "silent_ms", "u32", "Silent", "milliseconds" }, { "declared", "u32", "Declared", "tables" },
		{ "host", "str20", "Host" } },
	error = with({ { "code", "u16", "Code", "what is wrong", ERROR }, { "type", "x8", "Type", "of the request", TYPE },
		{ nil, 1 }, { "detail", "u32", "Detail" } }, TEXT),
	error_tail = { { "nonce", "x64", "Nonce", "of the JOIN that is refused" },
		{ "request", "u32", "Request", "its id" }, { nil, 4 }, { nil, 32 } }, -- the proof
}
-- what stands behind the rows: { rows of an entry, field with their number, most, { its own entries } }
local ENTRIES = {
	welcome = { "endpoint", "endpoints", 64 }, declare = { "tensor", "count" }, mapped = { "chunk", "count" },
	chunk = { "segment", "segments", 64 }, set = { "param", "count", 16 }, status_ok = { "member", "count" },
}
local TOTAL = { declare = "tensors", mapped = "chunks", status_ok = "workers" } -- first + count stays below it
local PAYLOAD = { [0x01] = "hello", [0x02] = "retry", [0x03] = "join", [0x04] = "welcome", [0x05] = "declare",
	[0x06] = "declared", [0x07] = "map", [0x08] = "mapped", [0x09] = "set", [0x0B] = "status",
	[0x0C] = "status_ok", [0x0F] = "error", [0x12] = "not_ready" }

-- ---- fields --------------------------------------------------------------------------------------

local F, fields = {}, {}

local function add_field(name, field)
	F[name] = field
	fields[#fields + 1] = field
end

local function make_field(prefix, row)
	local name, kind, label, help, values = row[1], row[2], row[3], row[4], row[5]
	if not name then return end
	local abbr = prefix .. name
	local full = "pbox." .. abbr
	local make = {
		u8 = ProtoField.uint8, u16 = ProtoField.uint16, u32 = ProtoField.uint32, u64 = ProtoField.uint64,
		x8 = ProtoField.uint8, x16 = ProtoField.uint16, x32 = ProtoField.uint32, x64 = ProtoField.uint64 }
	if make[kind] then
		local b = kind:sub(1, 1) == "x" and base.HEX or base.DEC
		add_field(abbr, make[kind](full, label, b, values, nil, help))
	elseif kind == "f64" then
		add_field(abbr, ProtoField.double(full, label, help))
	elseif kind == "ipv4" then
		add_field(abbr, ProtoField.ipv4(full, label, help))
	elseif kind:sub(1, 5) == "bytes" then
		add_field(abbr, ProtoField.bytes(full, label, base.NONE, help))
	else
		add_field(abbr, ProtoField.string(full, label, help))
	end
end

for _, row in ipairs(HEADER_ROWS) do make_field("", row) end
for _, f in ipairs(FLAG) do
	local name = "flags." .. f[2]:lower()
	add_field(name, ProtoField.bool("pbox." .. name, f[2], 16, nil, f[1], f[3]))
end
for message, rows in pairs(LAYOUT) do
	for _, row in ipairs(rows) do make_field(message .. ".", row) end
	local e = ENTRIES[message]
	if e then
		add_field(message .. "." .. e[1], ProtoField.protocol("pbox." .. message .. "." .. e[1], e[1]:gsub("^%l", string.upper)))
	end
end
for _, f in ipairs({
	{ "frame", "protocol", "Frame", "one of the datagram's" },
	{ "request_id", "uint32", "Request id", "control frames: the answer carries the same; 0: the box speaks unasked" },
	{ "chunk_id", "uint32", "Chunk id", "data frames" },
	{ "lr_mul", "float", "Learning-rate multiplier", "aux of contributions" },
	{ "contributors", "uint16", "Contributors", "aux of RESULT and WAIT" },
	{ "missing", "uint32", "First missing worker", "weight of WAIT; 4294967295: none" },
	{ "code", "uint16", "Error code", "aux of an ERROR without payload", ERROR },
	{ "restore", "uint16", "Restore", "aux of RESTORE_OK: how the fragment stands", RESTORE },
	{ "shutdown", "bool", "The box stops", "aux of an unasked LEFT" },
	{ "challenge", "uint64", "Nonce of an address", "round and base of PING and PONG: the box asks for it back, the worker proves its address" },
	{ "payload", "bytes", "Payload", "elements, or what a PING carries" },
	{ "element", "float", "Element", "of a tensor" },
	{ "tag", "bytes", "Tag", "of AUTH" },
	{ "tail", "bytes", "Tail", "bytes behind what this version knows: ignored" },
	{ "trailing", "bytes", "Trailing bytes", "behind the last frame" },
	{ "drop", "string", "Dropped as", "the counter of a receiver that drops this frame" },
	{ "crc.status", "uint8", "CRC status", "", { [0] = "bad", "good", "not verified" } },
	{ "job_name", "string", "Job name", "of the session, from its JOIN" },
	{ "tensor_name", "string", "Tensor", "that the fragment begins in, from DECLARE and MAPPED" },
	{ "response_in", "framenum", "Answered in", "packet", frametype.RESPONSE },
	{ "response_to", "framenum", "Answer to", "packet: the request with this ts", frametype.REQUEST },
	{ "repeat_of", "framenum", "Repeats", "packet: the first one of this request", frametype.NONE },
	{ "time", "relative_time", "Time", "from the request to this answer" },
	{ "time_first", "relative_time", "Time since the first", "from the first of repeated requests to this answer" },
	{ "round.first_in", "framenum", "First contribution", "packet", frametype.NONE },
	{ "round.last_in", "framenum", "Last contribution", "packet", frametype.NONE },
	{ "round.last_worker", "uint16", "Last worker", "whose contribution came last" },
	{ "round.spread", "relative_time", "Spread", "from the first contribution to the last" },
	{ "round.time", "relative_time", "Time since the last contribution", "of any worker to this round" },
}) do
	local name, kind, label, help, values = f[1], f[2], f[3], f[4], f[5]
	local full = "pbox." .. name
	if kind == "protocol" or kind == "string" or kind == "relative_time" or kind == "float" then
		if kind == "protocol" or kind == "float" then
			add_field(name, ProtoField[kind](full, label, help))
		elseif kind == "string" then
			add_field(name, ProtoField.string(full, label, help))
		else
			add_field(name, ProtoField.relative_time(full, label, help))
		end
	elseif kind == "bytes" then
		add_field(name, ProtoField.bytes(full, label, base.NONE, help))
	elseif kind == "framenum" then
		add_field(name, ProtoField.framenum(full, label, base.NONE, values, 0, help))
	elseif kind == "bool" then
		add_field(name, ProtoField.bool(full, label, base.NONE, nil, 0, help))
	else
		add_field(name, ProtoField[kind](full, label, base.DEC, values, nil, help))
	end
end
pbox.fields = fields

local X, experts = {}, {}
for _, e in ipairs({
	{ "frame_truncated", "The frame is longer than its datagram", "MALFORMED", "ERROR" },
	{ "frame_magic", "Not a PBox frame", "PROTOCOL", "WARN" },
	{ "frame_version", "Unknown version", "PROTOCOL", "WARN" },
	{ "frame_crc", "Bad CRC", "CHECKSUM", "ERROR" },
	{ "frame_flags", "Unknown flags", "PROTOCOL", "WARN" },
	{ "frame_type", "Unknown type", "PROTOCOL", "WARN" },
	{ "frame_auth", "A tag before there is a session", "SECURITY", "WARN" },
	{ "frame_trailing", "Bytes behind the last frame", "MALFORMED", "WARN" },
	{ "control_malformed", "Payload too short, or it contradicts itself", "MALFORMED", "ERROR" },
	{ "length", "Payload is not a whole number of elements", "MALFORMED", "WARN" },
	{ "format", "Element format that version 1 does not carry", "PROTOCOL", "WARN" },
	{ "partial", "Contribution without LAST", "PROTOCOL", "WARN" },
	{ "answer_error", "The box answers with an error", "RESPONSE_CODE", "WARN" },
	{ "repeated", "Repeated request", "SEQUENCE", "NOTE" },
	{ "congestion", "The sender has seen congestion (ECN)", "SEQUENCE", "NOTE" },
	{ "not_held", "The box does not have the contribution", "SEQUENCE", "NOTE" },
	{ "lost", "Nobody could give the fragment's version", "RESPONSE_CODE", "WARN" },
}) do
	X[e[1]] = ProtoExpert.new("pbox.expert." .. e[1], e[2], expert.group[e[3]], expert.severity[e[4]])
	experts[#experts + 1] = X[e[1]]
end
pbox.experts = experts

-- ---- preferences ---------------------------------------------------------------------------------

pbox.prefs.ports = Pref.range("UDP ports", "7269-7333", "of the box: control, then one for each data core", 65535)
pbox.prefs.heuristic = Pref.bool("Look for frames on other ports", true, "by magic, version, type and length")
pbox.prefs.crc = Pref.enum("Verify CRCs", 1, "in Lua: 0.1 ms for each kilobyte, once a packet", {
	{ 1, "never", 0 }, { 2, "of payloads up to " .. CRC_SHORT .. " bytes", 1 }, { 3, "always", 2 } }, false)
pbox.prefs.elements = Pref.uint("Elements shown", 16, "of a payload")

local udp, ports = DissectorTable.get("udp.port"), pbox.prefs.ports
function pbox.prefs_changed()
	if ports == pbox.prefs.ports then return end
	udp:remove(ports, pbox)
	ports = pbox.prefs.ports
	udp:add(ports, pbox)
end

-- ---- CRC32C (R2.4): two bytes a step ---------------------------------------------------------------

local bxor, band, rshift, byte = bit.bxor, bit.band, bit.rshift, string.byte
local crc_wide, crc_byte = nil, {}

local function crc_tables()
	crc_wide = {}
	for n = 0, 255 do
		local c = n
		for _ = 1, 8 do c = bxor(rshift(c, 1), band(c, 1) == 1 and 0x82F63B78 or 0) end
		crc_byte[n] = c
	end
	for n = 0, 65535 do
		local c = bxor(rshift(n, 8), crc_byte[band(n, 255)])
		crc_wide[n] = bxor(rshift(c, 8), crc_byte[band(c, 255)])
	end
end

-- complemented on both sides: crc32c("123456789", -1) is bnot(0xE3069283)
local function crc32c(s, c)
	if not crc_wide then crc_tables() end
	local wide, n = crc_wide, #s
	for i = 1, n - 7, 8 do
		local a, b, d, e, f, g, h, k = byte(s, i, i + 7)
		c = bxor(c, a + 256 * b)
		c = bxor(rshift(c, 16), wide[band(c, 0xFFFF)], d + 256 * e)
		c = bxor(rshift(c, 16), wide[band(c, 0xFFFF)], f + 256 * g)
		c = bxor(rshift(c, 16), wide[band(c, 0xFFFF)], h + 256 * k)
		c = bxor(rshift(c, 16), wide[band(c, 0xFFFF)])
	end
	for i = n - n % 8 + 1, n do c = bxor(rshift(c, 8), crc_byte[band(bxor(c, byte(s, i)), 255)]) end
	return c
end

-- ---- what is remembered of a capture ---------------------------------------------------------------

local seen, requests, rounds, jobs, names = {}, {}, {}, {}, {}

function pbox.init()
	seen, requests, rounds, jobs, names = {}, {}, {}, {}, {}
end

local function nstime(seconds)
	local whole = math.floor(seconds)
	return NSTime.new(whole, math.floor((seconds - whole) * 1e9 + 0.5))
end

-- worker's address, box's address: a request goes from the one to the other
local function parties(pinfo, from_box)
	local src = tostring(pinfo.src) .. ":" .. pinfo.src_port
	local dst = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
	if from_box then return dst .. "|" .. src end
	return src .. "|" .. dst
end

local function request_key(pinfo, h)
	local who = parties(pinfo, h.from_box)
	if h.control then
		if h.chunk == 0 then return nil end
		return who .. "|c" .. h.chunk
	end
	return string.format("%s|%d.%d|%d.%d", who, h.job, h.worker, h.chunk, h.frag)
end

-- first visit: find what the frame belongs to; kept under the packet's number and the frame's offset
local function remember(pinfo, h)
	local me = { number = pinfo.number, time = pinfo.rel_ts }
	local key = request_key(pinfo, h)
	if key and not h.from_box then
		local r = requests[key]
		-- the next round of a fragment is another request
		if not r or r.round ~= h.round or r.type ~= h.type then
			r = { round = h.round, type = h.type, first = me, by_ts = r and r.by_ts or {} }
			requests[key] = r
		else
			me.repeat_of = r.first.number
		end
		me.first = r.first
		r.by_ts[h.ts], r.latest = me, me
	elseif key then
		local r = requests[key]
		local to = r and (r.by_ts[h.ts] or (r.round == h.round and r.latest))
		if to then
			me.to, me.to_time, me.first_time = to.number, me.time - to.time, me.time - to.first.time
			-- WAIT is an answer as long as there is no other
			if not to.answer or to.wait then to.answer, to.wait = me.number, h.type == 0x25 end
		end
	end
	local k = string.format("%08x|%d|%d.%d|%d", h.incarnation, h.job, h.chunk, h.frag, h.round)
	if h.type == 0x20 or h.type == 0x24 then
		local r = rounds[k] or { first = me }
		rounds[k] = r
		r.workers = r.workers or {}
		if not r.workers[h.worker] then
			r.workers[h.worker], r.last, r.last_worker = true, me, h.worker
		end
	elseif h.type == 0x23 and rounds[k] then
		local r = rounds[k]
		me.round = { first = r.first, last = r.last, worker = r.last_worker }
	end
	return me
end

local function show_relations(tree, me)
	local function framenum(name, value)
		tree:add(F[name], value):set_generated()
	end
	if me.repeat_of then
		framenum("repeat_of", me.repeat_of)
		tree:add_proto_expert_info(X.repeated)
	end
	if me.answer then framenum("response_in", me.answer) end
	if me.to then
		framenum("response_to", me.to)
		tree:add(F.time, nstime(me.to_time)):set_generated()
		if me.first_time ~= me.to_time then tree:add(F.time_first, nstime(me.first_time)):set_generated() end
	end
	local r = me.round
	if r then
		framenum("round.first_in", r.first.number)
		framenum("round.last_in", r.last.number)
		tree:add(F["round.last_worker"], r.worker):set_generated()
		tree:add(F["round.spread"], nstime(r.last.time - r.first.time)):set_generated()
		tree:add(F["round.time"], nstime(me.time - r.last.time)):set_generated()
	end
end

-- jobs[incarnation|job]: names of tensors and the chunks that begin in them
local function job_of(h)
	local k = h.incarnation .. "|" .. h.job
	jobs[k] = jobs[k] or { tensors = {}, chunks = {} }
	return jobs[k]
end

local function learn(h, name, v)
	if name == "join" then
		names[tostring(v.nonce)] = v.job
	elseif name == "welcome" then
		h.incarnation, h.job = v.incarnation, v.job
		job_of(h).name = names[tostring(v.nonce)]
	elseif name == "declare" then
		for i, e in ipairs(v.entries) do job_of(h).tensors[v.table .. "." .. (v.first + i - 1)] = e.name end
	elseif name == "mapped" then
		for _, e in ipairs(v.entries) do
			job_of(h).chunks[e.chunk_id] = { table = v.table, frag = v.frag_elements, segments = e.entries }
		end
	end
end

local function tensor_of(h)
	local job = job_of(h)
	local c = job.chunks[h.chunk]
	if not c then return nil end
	local at = h.frag * c.frag
	for _, s in ipairs(c.segments) do
		if at < s.elements then
			local name = job.tensors[c.table .. "." .. s.tensor] or ("tensor " .. s.tensor)
			return string.format("%s[%s]", name, tostring(s.offset + at))
		end
		at = at - s.elements
	end
	return nil
end

-- ---- payloads --------------------------------------------------------------------------------------

local UTF8 = { "^[\0-\127]+", "^[\194-\223][\128-\191]", "^\224[\160-\191][\128-\191]",
	"^[\225-\236\238\239][\128-\191][\128-\191]", "^\237[\128-\159][\128-\191]",
	"^\240[\144-\191][\128-\191][\128-\191]", "^[\241-\243][\128-\191][\128-\191][\128-\191]",
	"^\244[\128-\143][\128-\191][\128-\191]" }

-- a text, with damaged UTF-8 replaced
local function readable(s)
	local out, at = {}, 1
	while at <= #s do
		local good
		for _, p in ipairs(UTF8) do good = good or s:match(p, at) end
		out[#out + 1] = good or "?"
		at = at + (good and #good or 1)
	end
	return table.concat(out)
end

-- One set of rows at `at` of a payload; the values by name, and where they end. nil: it ends too early.
local function add_rows(tree, buf, at, name)
	local v = { entries = {} }
	for _, row in ipairs(LAYOUT[name]) do
		local field, kind = row[1] and F[name .. "." .. row[1]], row[2]
		local size = SIZE[kind] or tonumber(kind) or tonumber(kind:match("%d+$"))
		if kind == "text" then size = v.text_len or v.name_len end
		if at + size > buf:len() then return nil, at end
		if size > 0 then
			local r = buf(at, size)
			if not field then
				-- room for later
			elseif kind == "ipv4" then
				tree:add(field, r)
				v[row[1]] = tostring(r:ipv4())
			elseif SIZE[kind] then
				tree:add_le(field, r)
				v[row[1]] = kind == "f64" and r:le_float() or (size == 8 and r:le_uint64() or r:le_uint())
			elseif kind:sub(1, 3) == "str" then
				local s = r:raw()
				if kind:sub(1, 4) == "strz" and not s:find("\0", 1, true) then return nil, at end
				v[row[1]] = readable(s:match("^[^\0]*"))
				tree:add(field, r, v[row[1]])
			elseif kind == "text" then
				v[row[1]] = readable(r:raw())
				tree:add(field, r, v[row[1]])
			else
				tree:add(field, r)
			end
		elseif field then
			v[row[1]] = ""
			tree:add(field, buf(at, 0), "")
		end
		at = at + size
	end
	return v, at
end

local function add_message(tree, buf, at, name)
	local v, e = nil, ENTRIES[name]
	v, at = add_rows(tree, buf, at, name)
	if not v then return nil, at end
	if TOTAL[name] and v.first + v.count > v[TOTAL[name]] then return nil, at end
	if not e then return v, at end
	local n = v[e[2]]
	if n > (e[3] or n) or (name == "chunk" and n == 0) then return nil, at end
	local elements = 0
	for _ = 1, n do
		if at >= buf:len() then return nil, at end
		local item = tree:add(F[name .. "." .. e[1]], buf(at))
		local sub, next_at = add_message(item, buf, at, e[1])
		if not sub then return nil, at end
		item:set_len(next_at - at)
		item:append_text(": " .. (sub.name or (sub.ipv4 and sub.ipv4 .. ":" .. sub.udp) or sub.host
			or (sub.id and string.format("%s = %g", HYPER[sub.id] or sub.id, sub.value)) or sub.chunk_id
			or tostring(sub.elements) .. " elements"))
		v.entries[#v.entries + 1], at = sub, next_at
		if name == "chunk" then elements = elements + sub.elements end
	end
	if name == "chunk" and elements ~= v.elements then return nil, at end
	return v, at
end

local function half(u) -- fp16
	local sign, e, m = u >= 0x8000 and -1 or 1, math.floor(u / 1024) % 32, u % 1024
	if e == 0 then return sign * m * 2 ^ -24 end
	if e == 31 then return m == 0 and sign * math.huge or 0 / 0 end
	return sign * (1 + m / 1024) * 2 ^ (e - 15)
end

local function widened(u) -- bf16
	return (Struct.unpack("<f", string.char(0, 0, u % 256, math.floor(u / 256))))
end

local function add_elements(tree, buf, format)
	local item = tree:add(F.payload, buf)
	local size = ELEMENT[format]
	if not size then return end
	item:append_text(string.format(" (%d elements of %s)", buf:len() / size, FORMAT[format]))
	for i = 0, math.min(pbox.prefs.elements, math.floor(buf:len() / size)) - 1 do
		local r = buf(i * size, size)
		if format == 1 then
			item:add_le(F.element, r)
		else
			item:add(F.element, r, format == 2 and widened(r:le_uint()) or half(r:le_uint()))
		end
	end
end

-- ---- frames ----------------------------------------------------------------------------------------

local function from_box(pinfo, h)
	if ANSWER[h.type] then return true end
	return h.type == 0x10 and h.chunk == 0 -- PING, unasked
end

local function describe(h, v)
	local text = TYPE[h.type] or string.format("type 0x%02x", h.type)
	if h.control then
		if h.chunk ~= 0 then text = text .. " #" .. h.chunk end
		if h.worker ~= 0 or h.job ~= 0 or h.token ~= UInt64(0) then text = text .. " w" .. h.worker end
		if h.type == 0x0F then
			text = text .. " " .. (ERROR[v and v.code or h.aux] or "?") .. (v and v.text ~= "" and ": " .. v.text or "")
		elseif v and v.text and v.text ~= "" then
			text = text .. ": " .. v.text
		elseif h.type == 0x03 and v then
			text = text .. string.format(" job '%s' worker %s of %d from %s", v.job,
				v.worker == 0xFFFF and "any" or v.worker, v.workers, v.host ~= "" and v.host or "?")
		elseif h.type == 0x04 and v then
			text = text .. string.format(" job %d worker %d of %d, %d endpoints, window %d", v.job, v.worker, v.workers,
				v.endpoints, v.window)
		elseif v and v.table then
			text = text .. " table " .. v.table
			if v.count and v.first then text = text .. string.format(" [%d..%d)", v.first, v.first + v.count) end
		end
		return text
	end
	text = text .. string.format(" w%d r%d chunk %d.%d", h.worker, h.round, h.chunk, h.frag)
	if h.tensor then text = text .. " " .. h.tensor end
	if h.type == 0x25 then
		text = text .. string.format(" %s, %d in", band(h.flags, 0x40) ~= 0 and "HAVE" or "not held", h.aux)
		if h.weight ~= NONE32 then text = text .. ", missing w" .. h.weight end
	elseif h.type == 0x23 then
		text = text .. string.format(" of %d, held %d us", h.aux, h.held)
	elseif h.type == 0x29 then
		text = text .. " " .. (RESTORE[h.aux] or "?")
	elseif h.type == 0x2B or h.type == 0x2C then
		text = text .. (h.aux == 0 and " parameters" or " state " .. h.aux)
	elseif h.type == 0x0F then
		text = text .. " " .. (ERROR[h.aux] or "?")
	end
	if band(h.flags, 0x08) ~= 0 then text = text .. " ZERO" end
	return text
end

local function add_header(tree, buf)
	local h, at = {}, 0
	for _, row in ipairs(HEADER_ROWS) do
		local size = SIZE[row[2]]
		local r = buf(at, size)
		h[row[1]] = size == 8 and r:le_uint64() or r:le_uint()
		local item = tree:add_le(F[row[1]], r)
		if row[1] == "flags" then
			local set = {}
			for _, f in ipairs(FLAG) do
				item:add_le(F["flags." .. f[2]:lower()], r)
				if band(h.flags, f[1]) ~= 0 then set[#set + 1] = f[2] end
			end
			if #set > 0 then item:append_text(" (" .. table.concat(set, ", ") .. ")") end
			h.flags_item = item
		elseif row[1] == "crc" then
			h.crc_item = item
		end
		at = at + size
	end
	-- an ERROR without payload answers data frames too, and has their numbers
	h.control = h.type < FIRST_DATA and (h.type ~= 0x0F or h.length > 0 or h.round + h.frag == 0)
	return h
end

-- what single fields mean in frames of this type
local function add_meanings(tree, buf, h)
	local function gen(name, value, at, size)
		tree:add(F[name], buf(at, size), value):set_generated()
	end
	gen(h.control and "request_id" or "chunk_id", h.chunk, 22, 4)
	if h.type == 0x20 or h.type == 0x24 then
		gen("lr_mul", widened(h.aux), 44, 2)
	elseif h.type == 0x23 or h.type == 0x25 then
		gen("contributors", h.aux, 44, 2)
		if h.type == 0x25 then gen("missing", h.weight, 46, 4) end
	elseif h.type == 0x29 then
		gen("restore", h.aux, 44, 2)
	elseif h.type == 0x0F and h.length == 0 then
		gen("code", h.aux, 44, 2)
	elseif h.type == 0x0E and h.chunk == 0 then
		gen("shutdown", h.aux == 1, 44, 2)
	elseif (h.type == 0x10 or h.type == 0x11) and h.round + h.base ~= 0 then
		gen("challenge", buf(30, 8):le_uint64(), 30, 8)
	end
end

local function crc_state(buf, h, id)
	if seen[id].crc then return seen[id].crc end
	local want, state = pbox.prefs.crc, 2
	if HEADER + h.length <= buf:len() and (want == 2 or (want == 1 and h.length <= CRC_SHORT)) then
		local c = crc32c(h.length > 0 and buf:raw(HEADER, h.length) or "", -1)
		state = bxor(crc32c(buf:raw(0, HEADER - 4), c), -1, bit.tobit(h.crc)) == 0 and 1 or 0
	end
	seen[id].crc = state
	return state
end

-- the drop of a frame behind a good header, in the order of R2.1, and of its payload
local function verdict(h, crc)
	if crc == 0 then return "frame_crc" end
	if band(h.flags, bit.bnot(KNOWN_FLAGS)) ~= 0 then return "frame_flags" end
	if not TYPE[h.type] then return "frame_type" end
	if band(h.flags, 0x10) ~= 0 and h.type >= 0x01 and h.type <= 0x03 then return "frame_auth" end
	if h.control then return nil end
	local carries = h.type == 0x20 or h.type == 0x23 or h.type == 0x24 or h.type == 0x26
	if carries and not ELEMENT[h.format] then return "format" end
	if carries and h.length % ELEMENT[h.format] ~= 0 then return "length" end
	if (h.type == 0x20 or h.type == 0x24) and band(h.flags, 1) == 0 then return "partial" end
	return nil
end

local function drop(tree, name, detail)
	tree:add(F.drop, name):set_generated()
	if detail then
		tree:add_proto_expert_info(X[name], detail)
	else
		tree:add_proto_expert_info(X[name])
	end
	tree:append_text(" [" .. name .. "]")
end

-- One frame of buf; its size, or nil when the rest of the datagram goes with it. info: for the column.
local function dissect_frame(buf, pinfo, root, offset, whole, info)
	local left = whole - offset
	local tree = root:add(F.frame, buf())
	if left < HEADER then
		if offset > 0 then tree:add(F.trailing, buf()) end
		drop(tree, offset == 0 and "frame_truncated" or "frame_trailing")
		info[#info + 1] = offset == 0 and "[frame_truncated]" or "[frame_trailing]"
		return nil
	end
	if buf:len() < HEADER then
		info[#info + 1] = "[not captured]"
		return nil
	end
	local magic, version = buf(0, 1):uint(), buf(1, 1):uint()
	if magic ~= MAGIC or version ~= VERSION then
		tree:add(F.magic, buf(0, 1))
		local name = magic ~= MAGIC and "frame_magic" or "frame_version"
		if magic == MAGIC then -- R2.2: all versions keep these where they are
			tree:add(F.version, buf(1, 1))
			tree:add(F.type, buf(2, 1))
			tree:add_le(F.chunk, buf(22, 4))
			tree:add_le(F.request_id, buf(22, 4)):set_generated()
		end
		drop(tree, name)
		info[#info + 1] = "[" .. name .. "]"
		return nil
	end
	local h = add_header(tree, buf)
	local size = HEADER + h.length + (band(h.flags, 0x10) ~= 0 and TAG or 0)
	if size > left then
		drop(tree, "frame_truncated", string.format("length %d, but %d bytes are left", h.length, left - HEADER))
		info[#info + 1] = describe(h) .. " [frame_truncated]"
		return nil
	end
	if buf:len() > size then buf = buf(0, size):tvb() end
	tree:set_len(math.min(size, buf:len()))
	h.from_box = from_box(pinfo, h)
	local id = pinfo.number .. "." .. offset
	local fresh = not seen[id]
	if fresh then seen[id] = {} end
	local crc = crc_state(buf, h, id)
	h.crc_item:append_text(({ [0] = " (bad)", " (good)", " (not verified)" })[crc])
	h.crc_item:add(F["crc.status"], buf(58, 4), crc):set_generated()
	add_meanings(tree, buf, h)

	local why = verdict(h, crc)
	local have = math.min(h.length, buf:len() - HEADER) -- of the payload: captures may cut
	local name, v = PAYLOAD[h.type], nil
	if h.control and not why and name and have == h.length and not (h.type == 0x0F and h.length == 0) then
		local item = have > 0 and buf(HEADER, have):tvb() or ByteArray.new():tvb("no payload")
		local at
		v, at = add_message(tree, item, 0, name)
		if v and h.type == 0x0F and at < have then
			local proven, behind = add_rows(tree, item, at, "error_tail")
			if proven then at = behind end
		end
		if not v then
			why = "control_malformed"
		elseif at < have then
			tree:add(F.tail, item(at))
		end
	elseif have > 0 then
		add_elements(tree, buf(HEADER, have), not h.control and h.format or 0)
	end
	if size > HEADER + h.length and buf:len() == size then tree:add(F.tag, buf(HEADER + h.length, TAG)) end

	if why then
		drop(tree, why)
	else
		if fresh then
			seen[id].me = remember(pinfo, h)
			if v then learn(h, name, v) end
			if not h.control then seen[id].tensor = tensor_of(h) end
			seen[id].job_name = job_of(h).name
		end
		h.tensor = seen[id].tensor
		if seen[id].job_name then tree:add(F.job_name, seen[id].job_name):set_generated() end
		if h.tensor then tree:add(F.tensor_name, h.tensor):set_generated() end
		if seen[id].me then show_relations(tree, seen[id].me) end
		if h.type == 0x0F then tree:add_proto_expert_info(X.answer_error) end
		if h.type == 0x25 and band(h.flags, 0x40) == 0 then tree:add_proto_expert_info(X.not_held) end
		if h.type == 0x29 and h.aux == 3 then tree:add_proto_expert_info(X.lost) end
		if band(h.flags, 0x04) ~= 0 then h.flags_item:add_proto_expert_info(X.congestion) end
	end
	local text = describe(h, v)
	tree:append_text(": " .. text)
	info[#info + 1] = text .. (why and " [" .. why .. "]" or "")
	return size
end

function pbox.dissector(buf, pinfo, root)
	local whole, offset, info = buf:reported_len(), 0, {}
	if whole == 0 then return 0 end
	pinfo.cols.protocol = "PBox"
	local tree = root:add(pbox, buf())
	while offset < whole and (offset < buf:len() or offset == 0) do
		local rest = offset == 0 and buf or buf(offset):tvb()
		local size = dissect_frame(rest, pinfo, tree, offset, whole, info)
		if not size then break end
		offset = offset + size
	end
	local text = info[1] or ""
	if #info == 2 then
		text = info[1] .. "; " .. info[2]
	elseif #info > 2 then
		text = string.format("%d frames: %s; ... %s", #info, info[1], info[#info])
	end
	pinfo.cols.info:set(text)
	tree:append_text(": " .. text)
	return buf:len()
end

local function looks_like(buf, pinfo, root)
	if not pbox.prefs.heuristic or buf:len() < HEADER then return false end
	if buf(0, 1):uint() ~= MAGIC or buf(1, 1):uint() ~= VERSION or not TYPE[buf(2, 1):uint()] then return false end
	if band(buf(4, 2):le_uint(), bit.bnot(KNOWN_FLAGS)) ~= 0 then return false end
	if HEADER + buf(28, 2):le_uint() > buf:reported_len() then return false end
	pbox.dissector(buf, pinfo, root)
	pinfo.conversation = pbox
	return true
end

pbox:register_heuristic("udp", looks_like)
udp:add(ports, pbox)
udp:add_for_decode_as(pbox)
