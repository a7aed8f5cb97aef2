%% A property of the pool: whatever random guests did in a slot, and however they ended, the next
%% tenant of that very slot begins with exactly the image of its module.
-module(isolation_prop_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

%% Slots that keep nothing, one page, some, and all they wrote; and one that nobody verifies, as in
%% production, where only the next tenant looks.
-define(LANES, [#{keep_resident => 0}, #{keep_resident => 4096}, #{keep_resident => 65536},
                #{keep_resident => 64 * 1024 * 1024},
                #{keep_resident => 64 * 1024 * 1024, verify => false}]).

%% Random guests with several memories of both widths, tables, globals and a start function; random
%% tenants; every way to end. A million requests with FULL=1, half of them by each runner.
t_the_next_tenant_sees_the_image(_) ->
    Requests = wasmtime_test:rounds(1_500, 20_000, 500_000),
    Batch = wasmtime_test:rounds(60, 400, 2_000),
    Proven = isolation_campaign:run(#{requests => Requests, lanes => ?LANES, batch => Batch}),
    ct:pal("~p", [Proven]),
    ?assertMatch(#{verified := Verified} when Verified >= Requests, Proven).
