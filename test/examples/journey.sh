#!/bin/sh
# The whole journey by curl alone: profile, long-term-care step, both deep dives, matches, application, and back.
#
#   sh test/examples/journey.sh
#   BASE=https://planning.example.com TOKEN=... sh test/examples/journey.sh
#
# Without TOKEN it is the demo user's, of the service or demo that was last started in this folder (npm start).
set -eu

BASE=${BASE:-http://127.0.0.1:3000}
data=$(dirname "$0")/../../data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

stop() {
  printf '\n%s\n' "$*" >&2
  exit 1
}

if [ -z "${TOKEN:-}" ]; then
  # A demo has a file of its own for its port.
  port=$(printf '%s\n' "$BASE" | sed -n 's|^[a-z]*://[^/]*:\([0-9]*\).*|\1|p')
  tokens=$(ls -t "$data/demo-tokens.json" "$data/demo-$port-tokens.json" 2>/dev/null | head -n 1)
  [ -r "$tokens" ] || stop 'Set TOKEN, or start the service in this folder first: npm start'
  TOKEN=$(sed -n 's/.*"demo-user": *"\([^"]*\)".*/\1/p' "$tokens")
fi
# In a file, since other users of a machine can read the arguments of a program.
printf 'Authorization: Bearer %s\n' "$TOKEN" >"$work/token"

# call METHOD PATH [BODY [MORE OPTIONS OF CURL...]]: leaves $status, and the answer in $work/head and $work/body.
call() {
  method=$1 url=$BASE/v2/private$2 body=${3-}
  shift $(($# < 3 ? $# : 3))
  if [ -n "$body" ]; then set -- -H 'Content-Type: application/json' -d "$body" "$@"; fi
  printf '%s %s\n' "$method" "$url"
  status=$(curl -sS --max-time 60 -X "$method" "$url" -H "@$work/token" "$@" \
    -D "$work/head" -o "$work/body" -w '%{http_code}') ||
    stop "Nothing answers at $BASE: is the service started there (npm start)?"
}

# The same, for a call that has to succeed.
must() {
  call "$@"
  case $status in
    2??) ;;
    *) stop "$(refusal)" ;;
  esac
}

# The answer, a line for each member. No text in JSON holds a bare quote, so nothing else looks like a name.
members() {
  { cat "$work/body" && echo; } | sed 's/\([{,]\)\("[A-Za-z_]*":\)/\1\
    \2/g' | sed -e '/^[[{]*$/d' -e 's/}[]},{]*$//' -e 's/,$//'
}

# value NAME: the first text or number of that name in the answer.
value() {
  members | sed -n -e "s/^ *\"$1\":\"\([^\"]*\)\".*/\1/p" -e "s/^ *\"$1\":\([-0-9.]\{1,\}\).*/\1/p" | head -n 1
}

# show NAME...: the members of these names.
show() {
  members | grep -E "^ *\"($(echo "$*" | tr ' ' '|'))\":" || echo '    (none)'
}

etag() {
  awk 'tolower($1) == "etag:" { sub(/\r$/, ""); print $2 }' "$work/head"
}

# What every refusal tells: its title, each field with the rule that it breaks, and the page that explains it.
refusal() {
  printf 'Refused with %s: %s\n%s\n' "$status" "$(value title)" "$(value detail)"
  if [ "$(value code)" = 201 ]; then show pointer rule message; fi
  printf 'See %s\n' "$(value type | sed "s|^/|$BASE/|")"
}

step() {
  printf '\n== %s\n' "$*"
}

step 'Save the profile'
must POST /user/profile '{"firstName":"Ada","dateOfBirth":"1956-12-10","state":"VA","heightCm":165,"weightKg":61.5}'
show firstName dateOfBirth state heightCm weightKg updatedAt
saved=$(etag)
echo "    ETag: $saved"

step 'A field that breaks a rule is refused, and nothing is stored'
call POST /user/profile '{"heightCm":20}'
[ "$status" = 422 ] || stop "Expected 422 and got $status"
refusal

step 'Save the long-term-care step, unless the record has changed since (If-Match)'
must POST /ltc/lifetimeCare \
  '{"careFacilityType":"inHome","relationshipStatus":"married","careCosts":4500,"policyValue":250000}' \
  -H "If-Match: $saved"
show careFacilityType relationshipStatus careCosts policyValue

step 'Save the life-insurance deep dive'
must POST /deepDives/lifeInsurance \
  '{"livingStatus":"stayHome","billsAndDebt":["mortgage","cc"],"customSelections":[{"title":"My niece"}]}'
show livingStatus billsAndDebt title

step 'Save the lifetime-care deep dive'
must POST /deepDives/lifetimeCare \
  '{"careFacilityType":"assistedLiving","familyHistory":["stroke"],"hobbies":[{"id":0,"title":"Gardening"}]}'
show careFacilityType familyHistory

step 'Match products to these answers, and say why'
must POST '/engine/matches?explain=true'
members | sed -n -e '/"remainingMatches"/q' -e '/"bestMatch"/,$p'
echo 'All of them, the best first:'
show productName score

step 'Start an application at the carrier, once however often it is sent'
applicant='{"firstName":"Ada","lastName":"Byron","dateOfBirth":"1956-12-10","gender":"Female","state":"VA","email":"ada@example.com"}'
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
must POST /ltc/totalCoverage "$applicant" -H "Idempotency-Key: $key"
show appNumber product coverage years price
number=$(value appNumber)
must POST /ltc/totalCoverage "$applicant" -H "Idempotency-Key: $key"
[ "$(value appNumber)" = "$number" ] || stop 'There are two applications'
echo "    Sent again, it is the same: $number"

step 'List the applications'
must GET /user/applications
show id flow state appNumber supersedes createdAt settledAt

step 'Read it all back'
must GET /user
members
current=$(etag)

step 'Read it again only if it has changed (If-None-Match)'
call GET /user '' -H "If-None-Match: $current"
echo "    $status"
