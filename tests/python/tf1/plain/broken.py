# SPDX-License-Identifier: Apache-2.0
import beside

beside.fail()
