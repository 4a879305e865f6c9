#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# udhcpc runs it with what it got: address, length of the network, MTU if the server says it. Nothing is set.
# shellcheck disable=SC2154
[ "$1" != bound ] || echo "$ip/$mask ${mtu:-}"
