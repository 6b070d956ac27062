#!/bin/sh
# The whole journey with curl: profile, long-term-care step, both deep dives, matches and application.
#
#   sh test/examples/journey.sh
#   BASE=https://planning.example.com TOKEN=... sh test/examples/journey.sh
#
# Without TOKEN it uses the demo user's token of the latest start in this folder (npm start).
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
  # A demo writes a token file with its port in the name.
  port=$(printf '%s\n' "$BASE" | sed -n 's|^[a-z]*://[^/]*:\([0-9]*\).*|\1|p')
  tokens=$(ls -t "$data/demo-tokens.json" "$data/demo-$port-tokens.json" 2>/dev/null | head -n 1)
  [ -r "$tokens" ] || stop 'Set TOKEN, or start the service in this folder first: npm start'
  TOKEN=$(sed -n 's/.*"demo-user": *"\([^"]*\)".*/\1/p' "$tokens")
fi
# The token is passed in a file, because other users can read the arguments of a process.
printf 'Authorization: Bearer %s\n' "$TOKEN" >"$work/token"

# call METHOD PATH [BODY [CURL OPTIONS...]]: sets $status and writes the response to $work/head and $work/body.
call() {
  method=$1 url=$BASE/v2/private$2 body=${3-}
  shift $(($# < 3 ? $# : 3))
  if [ -n "$body" ]; then set -- -H 'Content-Type: application/json' -d "$body" "$@"; fi
  printf '%s %s\n' "$method" "$url"
  status=$(curl -sS --max-time 60 -X "$method" "$url" -H "@$work/token" "$@" \
    -D "$work/head" -o "$work/body" -w '%{http_code}') ||
    stop "No response from $BASE. Start the service with: npm start"
}

# Like call, but exits unless the call succeeds.
must() {
  call "$@"
  case $status in
    2??) ;;
    *) stop "$(refusal)" ;;
  esac
}

# Prints the response with one member a line. JSON text has no unescaped quotes, so only names match.
members() {
  { cat "$work/body" && echo; } | sed 's/\([{,]\)\("[A-Za-z_]*":\)/\1\
    \2/g' | sed -e '/^[[{]*$/d' -e 's/}[]},{]*$//' -e 's/,$//'
}

# value NAME: prints the first text or number with this name in the response.
value() {
  members | sed -n -e "s/^ *\"$1\":\"\([^\"]*\)\".*/\1/p" -e "s/^ *\"$1\":\([-0-9.]\{1,\}\).*/\1/p" | head -n 1
}

# show NAME...: prints the members with these names.
show() {
  members | grep -E "^ *\"($(echo "$*" | tr ' ' '|'))\":" || echo '    (none)'
}

etag() {
  awk 'tolower($1) == "etag:" { sub(/\r$/, ""); print $2 }' "$work/head"
}

# Prints the title of a problem, its invalid fields with their rules, and the page that explains it.
refusal() {
  printf 'Rejected with %s: %s\n%s\n' "$status" "$(value title)" "$(value detail)"
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

step 'An invalid field is rejected, and nothing is stored'
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

step 'Match products with reasons'
must POST '/engine/matches?explain=true'
members | sed -n -e '/"remainingMatches"/q' -e '/"bestMatch"/,$p'
echo 'All products, best first:'
show productName score

step 'Start an application at the carrier, once for repeated requests'
applicant='{"firstName":"Ada","lastName":"Byron","dateOfBirth":"1956-12-10","gender":"Female","state":"VA","email":"ada@example.com"}'
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
must POST /ltc/totalCoverage "$applicant" -H "Idempotency-Key: $key"
show appNumber product coverage years price
number=$(value appNumber)
must POST /ltc/totalCoverage "$applicant" -H "Idempotency-Key: $key"
[ "$(value appNumber)" = "$number" ] || stop 'There are two applications'
echo "    The repeated request returns the same number: $number"

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
