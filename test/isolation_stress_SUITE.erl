%% Isolation where the system moves pages about: in swap, with huge pages everywhere, with children
%% made at any moment, and where a slot may keep less than was written.
-module(isolation_stress_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(HOST_PAGE, 4096).
-define(LANES, [#{keep_resident => 8 * ?HOST_PAGE}, #{keep_resident => 64 * 1024 * 1024},
                #{keep_resident => 64 * 1024 * 1024, verify => false}]).

campaign(Extra) ->
    maps:merge(#{requests => wasmtime_test:rounds(120, 4_000, 50_000), lanes => ?LANES, batch => 80},
               Extra).

proven(Campaign, Proven) ->
    #{requests := Requests} = Campaign,
    ?assertMatch(#{verified := Verified} when Verified >= Requests, Proven).

%% ---- swap -----------------------------------------------------------------------------------

%% A node that is held at random moments until all its memory is taken away: so pages go to swap of
%% slots that are idle, whose tenants run, and that are just being restored. It goes on until that was
%% seen often enough.
t_swapped_out(Config) ->
    Campaign = campaign(#{}),
    Dir = wasmtime_test:temp(Config, "swap"),
    Enough = filename:join(Dir, "enough"),
    isolation_pages:with_swap(Dir, fun(Swap) ->
        isolation_pages:with_group(fun(Group) ->
            #{runner := Runner} = wasmtime_test:with_runner(#{}),
            Call = {?MODULE, in_node, [Runner, Campaign, Enough]},
            Port = cached_node:start(Call, isolation_pages:enter(Group)),
            {os_pid, Pid} = erlang:port_info(Port, os_pid),
            Looks = squeeze(Group, integer_to_list(Pid), wasmtime_test:rounds(3, 20, 200)),
            ok = file:write_file(Enough, ""),
            proven(Campaign, cached_node:result(Port)),
            forced(Swap, Group, Looks)
        end)
    end).

in_node(Runner, Campaign, Enough) ->
    wasmtime_test:use(Runner),
    until(Campaign, Enough).

until(Campaign, Enough) ->
    Proven = isolation_campaign:run(Campaign),
    case is_map(Proven) andalso not filelib:is_file(Enough) of
        true -> until(Campaign, Enough);
        false -> Proven
    end.

%% Holds the node and takes its memory away until slots of it were in swap so many times, or thirty
%% times as many looks saw nothing: the KiB seen by each look.
squeeze(Group, Pid, Wanted) -> squeeze(Group, Pid, Wanted, 30 * Wanted).

squeeze(_, _, 0, _) -> [];
squeeze(_, _, _, 0) -> [];
squeeze(Group, Pid, Wanted, Left) ->
    case slots(Pid) of
        gone -> [];
        %% A node that is squeezed while it starts does not come to anything.
        #{mappings := 0} -> timer:sleep(10), squeeze(Group, Pid, Wanted, Left);
        #{} ->
            KiB = look(Group, Pid),
            timer:sleep(rand:uniform(100)),
            [KiB | squeeze(Group, Pid, Wanted - min(KiB, 1), Left - 1)]
    end.

look(Group, Pid) ->
    _ = os:cmd("kill -STOP " ++ Pid),
    isolation_pages:squeeze(Group),
    Slots = slots(Pid),
    _ = os:cmd("kill -CONT " ++ Pid),
    case Slots of
        #{swap := KiB} -> KiB;
        _ -> 0
    end.

slots(Pid) ->
    try isolation_pages:slots(Pid)
    catch error:{badmatch, {error, _}} -> gone
    end.

forced(swap, {_, File, _}, Looks) ->
    ct:comment("~s ~b times: ~b KiB of slots in swap, ~b at most",
               [File, length(Looks), lists:sum(Looks), lists:max(Looks)]),
    ?assert(lists:sum(Looks) > 0);
forced(Swap, Group, Looks) ->
    ct:comment("~b looks, nothing to force it with (~p, ~p): ~b KiB in swap",
               [length(Looks), Swap, Group, lists:sum(Looks)]).

%% ---- huge pages -----------------------------------------------------------------------------

%% With huge pages for every mapping, a slot that is written from end to end has none, and the next
%% tenant of any guest sees the image.
t_huge_pages(_) ->
    Path = "/sys/kernel/mm/transparent_hugepage/enabled",
    isolation_pages:with_setting(Path, "always", fun(Set) ->
        Large = #{memories => [#{bits => 32, min => 128, data => [{100, 1, 5_000}]}], tables => [],
                  number => 1, passive => {1, 3}, start => []},
        Options = wasmtime_test:pool(#{instances => 1, keep_resident => 64 bsl 20}),
        Guest = #{template := Template} = isolation_tenant:guest(Large, Options),
        Seen = [written(Guest, Template) || _ <- lists:seq(1, wasmtime_test:rounds(3, 10, 200))],
        ?assertEqual([{0, 0}], lists:usort([{Huge, Allowed} || {Huge, Allowed, _} <- Seen])),
        ?assert(lists:all(fun({_, _, Rss}) -> Rss >= 8 * 1024 end, Seen)),
        Campaign = campaign(#{}),
        proven(Campaign, isolation_campaign:run(Campaign)),
        ct:comment("huge pages always: ~p; 0 KiB of them in slots", [Set])
    end).

%% Huge KiB, mappings that may have huge pages, and KiB, of a tenant that wrote everything.
written(Guest, Template) ->
    ok = isolation_tenant:run(Guest, {whole, [{scatter, 0, [23, 100]}], return}),
    {ok, Inst} = wasmtime:instantiate(Template),
    {ok, []} = wasmtime:call(Inst, <<"fill0">>, [0, 90, 128 * 65536]),
    #{mappings := Mappings, huge_allowed := Allowed, huge := Huge, rss := Rss} =
        isolation_pages:slots("self"),
    ?assert(Mappings > 0),
    ok = wasmtime:destroy(Inst),
    {Huge, Allowed, Rss}.

%% ---- children -------------------------------------------------------------------------------

%% Commands and ports at any moment: while tenants come and go, inside host functions, and while a
%% guest runs. No command has anything of the node's.
t_children(_) ->
    Campaign = campaign(#{endings => [{4, return}, {2, {host, child}}, {1, {running, child}}]}),
    Storm = spawn_link(fun() -> storm(0) end),
    Proven = isolation_campaign:run(Campaign),
    Storm ! {stop, self()},
    Children = receive {Storm, Made} -> Made end,
    ct:comment("~b commands and ports meanwhile", [Children]),
    ?assert(Children > 0),
    proven(Campaign, Proven).

storm(Made) ->
    receive {stop, Pid} -> Pid ! {self(), Made}
    after 0 ->
        "erl_child_setup" = string:trim(os:cmd("cat /proc/$PPID/comm")),
        nomatch = string:find(os:cmd("ls -l /proc/self/fd; cat /proc/self/maps"), "wasm-image"),
        Port = open_port({spawn, "cat"}, [binary]),
        true = port_command(Port, <<"hello">>),
        receive {Port, {data, <<"hello">>}} -> true = port_close(Port) end,
        storm(Made + 3)
    end.

%% ---- what a slot keeps ----------------------------------------------------------------------

%% As many pages written as may stay, one more, one less, and where only one or none may.
t_keep_resident(_) ->
    Dirty = 20,
    Description = #{memories => [#{bits => 32, min => 8, data => [{100, 1, 70_000}]}], tables => [],
                    number => 1, passive => {1, 3}, start => []},
    [begin
         Options = wasmtime_test:pool(#{instances => 1, keep_resident => Keep}),
         {ok, Mod} = wasmtime:compile(isolation_guest:text(Description), Options),
         Guest = isolation_tenant:guest(Description, Options),
         Writes = [{store, 0, [Page * 5 * ?HOST_PAGE + Page, -1]} || Page <- lists:seq(0, Dirty - 1)],
         Tenants = wasmtime_test:rounds(10, 200, 5_000),
         [?assertEqual({Keep, ok}, {Keep, isolation_tenant:run(Guest, {whole, Writes, return})})
          || _ <- lists:seq(1, Tenants)],
         #{verify_failures := 0, resets := Tenants, bytes_restored := Bytes} =
             wasmtime_test:restored(Mod),
         maps:get(pagemap_scan, wasmtime:features())
             andalso ?assertEqual({Keep, min(Keep, Dirty * ?HOST_PAGE)}, {Keep, Bytes div Tenants})
     end || Keep <- [0, ?HOST_PAGE, (Dirty - 1) * ?HOST_PAGE, Dirty * ?HOST_PAGE,
                     (Dirty + 1) * ?HOST_PAGE]].
