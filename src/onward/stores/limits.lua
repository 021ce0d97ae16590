-- A batch of operations on rate limits, in order, atomic. What they mean stands in admission/limits.py.
--
-- KEYS[1]  the prefix of all keys
-- ARGV[1]  MessagePack, an array of operations:
--            {1, request, subject, lease, tokens, requests per minute, tokens per minute, concurrency}
--            {2, request, subject, tokens used, whether it counts}
--            {3, lease}   its process lives
--            {4, lease}   its process is gone
-- ARGV[2]  seconds since 1970 in place of Redis' own clock, or nothing
-- Returns  MessagePack: for each operation of the first sort false, or {kind, limit, seconds to wait}
--
-- Keys: `windows:SUBJECT` is a string of doubles: the newest slice, the sums of requests and tokens, then
-- requests and tokens of each of the 61 slices, slice s at s % 61. `places:SUBJECT` maps requests to what
-- they took, `lease:LEASE` requests to subjects; `leases` has the times when leases fall.

local SLICES, LEASE, FORGET = 61, 60, 86400
local prefix = KEYS[1]
local time = tonumber(ARGV[2])
if not time then
  local told = redis.call('TIME')
  time = tonumber(told[1]) + tonumber(told[2]) / 1000000
end
local now = math.floor(time)
local leases = prefix .. 'leases'

local function drop(lease)
  local key = prefix .. 'lease:' .. lease
  local places = redis.call('HGETALL', key)
  for i = 1, #places, 2 do
    redis.call('HDEL', prefix .. 'places:' .. places[i + 1], places[i])
  end
  redis.call('DEL', key)
  redis.call('ZREM', leases, lease)
end

local function header(window)
  redis.call('SETRANGE', window.key, 0, struct.pack('<ddd', window.at, window.requests, window.tokens))
  redis.call('EXPIRE', window.key, 2 * SLICES)
end

local function slot(window, index)
  local from = 24 + 16 * index
  local text = redis.call('GETRANGE', window.key, from, from + 15)
  if #text < 16 then return 0, 0 end
  local requests, tokens = struct.unpack('<dd', text)
  return requests, tokens
end

local function put(window, index, requests, tokens)
  redis.call('SETRANGE', window.key, 24 + 16 * index, struct.pack('<dd', requests, tokens))
end

-- The window of a subject, with the slices that are past forgotten.
local function open(subject)
  local window = {key = prefix .. 'windows:' .. subject, at = now, requests = 0, tokens = 0}
  local text = redis.call('GETRANGE', window.key, 0, 23)
  if #text < 24 then return window end
  local at, requests, tokens = struct.unpack('<ddd', text)
  if now - at >= SLICES then
    redis.call('DEL', window.key)
    return window
  end
  for number = at + 1, now do
    local index = number % SLICES
    local r, t = slot(window, index)
    if r ~= 0 or t ~= 0 then
      requests, tokens = requests - r, tokens - t
      put(window, index, 0, 0)
    end
  end
  window.at, window.requests, window.tokens = math.max(at, now), requests, tokens
  if at < now then header(window) end
  return window
end

local function add(window, number, requests, tokens)
  if window.at - number >= SLICES then return end
  local index = number % SLICES
  local r, t = slot(window, index)
  put(window, index, r + requests, t + tokens)
  window.requests, window.tokens = window.requests + requests, window.tokens + tokens
  header(window)
end

-- Whole seconds until there is room for `amount` among what is counted in `which` (1 requests, 2 tokens).
local function wait(window, which, amount, limit)
  if amount > limit then return 0 end
  local missing = (which == 1 and window.requests or window.tokens) + amount - limit
  for number = window.at - SLICES + 1, window.at do
    local counts = {slot(window, number % SLICES)}
    missing = missing - counts[which]
    if missing <= 0 then return math.max(1, math.ceil(number + SLICES - time)) end
  end
  return 1
end

-- The refusal that lasts longer; 0 is for ever.
local function worse(one, other)
  if not one or other[3] == 0 then return other end
  if one[3] == 0 or one[3] >= other[3] then return one end
  return other
end

local function take(op)
  local id, subject, lease, tokens = op[2], op[3], op[4], op[5]
  local rpm, tpm, most = op[6], op[7], op[8]
  local places = prefix .. 'places:' .. subject
  if redis.call('HEXISTS', places, id) == 1 then return false end
  local window = (rpm or tpm) and open(subject)
  local refused = false
  if rpm and window.requests >= rpm then
    refused = {'requests', rpm, wait(window, 1, 1, rpm)}
  end
  if tpm and window.tokens + tokens > tpm then
    refused = worse(refused, {'tokens', tpm, wait(window, 2, tokens, tpm)})
  end
  if most and redis.call('HLEN', places) >= most then
    refused = worse(refused, {'concurrency', most, most > 0 and 1 or 0})
  end
  if refused then return refused end
  if window then add(window, window.at, rpm and 1 or 0, tpm and tokens or 0) end
  local number = window and window.at or now
  redis.call('HSET', places, id, cmsgpack.pack({lease, number, rpm and 1 or 0, tpm and tokens or -1}))
  redis.call('EXPIRE', places, FORGET)
  local holding = prefix .. 'lease:' .. lease
  redis.call('HSET', holding, id, subject)
  redis.call('EXPIRE', holding, FORGET)
  redis.call('ZADD', leases, 'NX', time + LEASE, lease)
  return false
end

local function give_back(op)
  local id, subject, used, counts = op[2], op[3], op[4], op[5]
  local places = prefix .. 'places:' .. subject
  local place = redis.call('HGET', places, id)
  if not place then return end
  redis.call('HDEL', places, id)
  local lease, number, requests, tokens = unpack(cmsgpack.unpack(place))
  redis.call('HDEL', prefix .. 'lease:' .. lease, id)
  if not counts then used = 0 end
  local less = 0
  if requests == 1 and not counts then less = 1 end
  local more = 0
  if tokens >= 0 then more = used - tokens end
  if less == 0 and more == 0 then return end
  local window = open(subject)
  if less ~= 0 or more < 0 then add(window, number, -less, math.min(more, 0)) end
  -- What is above was learnt now, so it counts from now.
  if more > 0 then add(window, window.at, 0, more) end
end

for _, lease in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', time, 'LIMIT', 0, 100)) do
  drop(lease)
end
local results = {}
for _, op in ipairs(cmsgpack.unpack(ARGV[1])) do
  if op[1] == 1 then
    results[#results + 1] = take(op)
  elseif op[1] == 2 then
    give_back(op)
  elseif op[1] == 3 then
    redis.call('ZADD', leases, time + LEASE, op[2])
  else
    drop(op[2])
  end
end
redis.call('EXPIRE', leases, FORGET)
return cmsgpack.pack(results)
