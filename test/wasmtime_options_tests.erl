%% Every option: what it takes, what it refuses, its default, and that a refusal names it.
-module(wasmtime_options_tests).
-include_lib("eunit/include/eunit.hrl").

-define(MAX, 16#FFFFFFFFFFFFFFFF).

%% The checks, each to {ok, Map} or an error.
compile(Opts) -> wasmtime_options:compile(Opts).
pooling(Opts) -> compile(#{allocator => pooling, pooling => Opts}).
proposals(Opts) -> compile(#{proposals => Opts}).
call(Opts) -> wasmtime_options:call(Opts).
instance(Opts) ->
    case wasmtime_options:instance(instantiate, Opts, module) of
        {ok, Complete, _} -> {ok, Complete};
        Error -> Error
    end.
wasi(Opts) -> instance(#{wasi => Opts}).
sealing(Opts) -> wasmtime_artifact:sealing(Opts).
load(Opts) -> loading(wasmtime_artifact:load(Opts)).
load_file(Opts) -> loading(wasmtime_artifact:load_file(Opts)).
loading({ok, Compile, Load}) -> {ok, maps:merge(Compile, Load)};
loading(Error) -> Error.

%% {Check, Class, Key, Accepted, Refused}
table() ->
    F = fun(_, _) -> {ok, []} end,
    Limit = {[0, 1, ?MAX, unlimited], [-1, ?MAX + 1, infinity, 1.0, <<"1">>]},
    Limits = [{fun instance/1, instantiate, Key, element(1, Limit), element(2, Limit)}
              || Key <- [memory_limit, total_memory_limit, max_tables, max_table_elements,
                         max_instances]],
    Proposals = [{fun proposals/1, compile, P, [true, false], [1, undefined, "true"]}
                 || P <- [simd, relaxed_simd, relaxed_simd_deterministic, bulk_memory, multi_value,
                          multi_memory, memory64, tail_call, wide_arithmetic, custom_page_sizes,
                          threads, reference_types, function_references, gc, exceptions]],
    Outputs = [{fun wasi/1, instantiate, Key,
                [none, inherit, capture, stream, {file, "a"}, {file, <<"a">>}, {file, [<<"a">>, $b]}],
                [streams, file, {file, a}, {file, ""}, {file, <<"a", 0>>}, "a"]}
               || Key <- [stdout, stderr]],
    Limits ++ Proposals ++ Outputs ++
    [{fun compile/1, compile, fuel, [true, false], [1, yes]},
     {fun compile/1, compile, opt_level, [none, speed, speed_and_size], [0, fast, "speed"]},
     {fun compile/1, compile, proposals, [#{}], [[], simd, [{simd, true}]]},
     {fun compile/1, compile, allocator, [on_demand, pooling], [pool, true]},
     {fun sealing/1, compile, key, [<<0>>, <<"key">>], [<<>>, "key", key, undefined, <<1:1>>]},
     {fun load/1, compile, key, [<<0>>, <<"key">>], [<<>>, "key", key, undefined, <<1:1>>]},
     {fun load_file/1, compile, key, [<<0>>, <<"key">>], [<<>>, "key", key, undefined, <<1:1>>]},
     {fun load/1, compile, check, [full], [metadata, none, true]},
     {fun load_file/1, compile, check, [metadata, full], [none, true, "full"]},
     {fun load_file/1, compile, fuel, [true, false], [1, yes]},
     {fun pooling/1, compile, instances, [1, 10000], [0, 10001, -1, 1.0, a]},
     {fun pooling/1, compile, max_memory, [65536, 131072, 4294967296],
      [0, 65535, 65537, 4294967296 + 65536, a]},
     {fun pooling/1, compile, keep_resident, [0, 1, 268435456], [-1, 268435457, 1 bsl 40, a]},
     {fun pooling/1, compile, core_instances, [1, 100000], [0, 100001, a]},
     {fun pooling/1, compile, tables, [1, 100000], [0, 100001, a]},
     {fun pooling/1, compile, memories, [1, 10000], [0, 10001, a]},
     {fun pooling/1, compile, verify, [true, false], [1, a]},
     {fun instance/1, instantiate, imports, [#{}, #{{"a", <<"b">>} => F}],
      [[], F, #{a => F}, #{{"a", "b"} => fun(_) -> ok end}, #{{"a", "b"} => 1}, #{{a, b} => F},
       #{{"a", 0} => F}, #{{<<"a", 0>>, "b"} => F}, #{{"a", "b"} => F, {<<"a">>, <<"b">>} => F}]},
     {fun instance/1, instantiate, {"a", <<"b">>}, [F], [1, fun() -> ok end, fun(_) -> ok end]},
     {fun instance/1, instantiate, {"a", b}, [], [F]},
     {fun instance/1, instantiate, links, [[], [{"a", module()}, {<<"b">>, module()}]],
      [#{}, a, ["a"], [{"a", b}], [{"a", make_ref()}], [{a, module()}], [{<<"a", 0>>, module()}],
       [{"a", module()} | b]]},
     {fun instance/1, instantiate, wasi, [#{}], [[], true, undefined]},
     {fun instance/1, instantiate, host_timeout, [0, 1, 16#FFFFFFFF, infinity],
      [-1, 16#100000000, unlimited, 1.0]},
     {fun instance/1, instantiate, runner, [thread, scheduler], [threads, 1]},
     {fun instance/1, instantiate, stream, [self()], [self, undefined, make_ref(), foreign()]},
     {fun instance/1, instantiate, inbox_limit, [0, 1, ?MAX], [-1, ?MAX + 1, infinity, unlimited, a]},
     {fun instance/1, instantiate, host, [self()], [undefined, a, <<"p">>, make_ref(), 1, [self()], foreign()]},
     {fun wasi/1, instantiate, args, [[], ["a", <<"b">>, [$c, <<"d">>]]],
      ["ab", <<"a">>, [a], [<<"a", 0>>], ["a" | b], [<<255>>]]},
     {fun wasi/1, instantiate, env, [inherit, [], [{"A", <<"b">>}, {"B", ""}]],
      [[{"A", b}], [{"", "x"}], [{"A=B", "x"}], [{"A", <<0>>}], [a], all, [{"A", "b"} | c]]},
     {fun wasi/1, instantiate, dirs, [[], [{"/", "/x", read}, {<<"/a">>, <<"b", 255>>, write}]],
      [["/"], [{"/", "/x"}], [{"/", "/x", rw}], [{"/", <<"x", 0>>, read}], [{"", "/x", read}],
       [{"/", "", read}], [{a, "/x", read}], {"/", "/x", read}]},
     {fun wasi/1, instantiate, stdin,
      [none, inherit, stream, {file, "a"}, {binary, <<0>>}, {binary, ["a", <<"b">>]}],
      [streams, capture, {file, ""}, {file, <<"a", 0>>}, {binary, a}, {binary, [300]}, <<"a">>]},
     {fun wasi/1, instantiate, output_limit, [0, ?MAX], [-1, ?MAX + 1, unlimited, a]},
     {fun wasi/1, instantiate, clocks, [all, monotonic], [none, wall]},
     {fun call/1, call, timeout, [0, 16#FFFFFFFF, infinity], [-1, 16#100000000, 1.0, a]},
     {fun call/1, call, fuel, [0, ?MAX], [-1, ?MAX + 1, infinity, undefined]}].

module() ->
    {ok, Mod} = wasmtime:compile({wat, "(module)"}),
    Mod.

%% A process of another node: its external format.
foreign() ->
    binary_to_term(<<131, 88, 119, 3, "a@b", 1:32, 0:32, 1:32>>).

%% Both sides of each boundary.
table_test_() ->
    [{lists:flatten(io_lib:format("~0tp ~0tp", [Key, Value])), Test}
     || {Check, Class, Key, Accepted, Refused} <- table(),
        {Value, Test} <- [{V, fun() -> accepted(Check, Key, V) end} || V <- Accepted] ++
                         [{V, fun() -> refused(Check, Class, Key, V) end} || V <- Refused]].

accepted(Check, Key, Value) -> ?assertMatch({ok, #{}}, Check(#{Key => Value})).

refused(Check, Class, Key, Value) ->
    {error, #{class := Class, kind := badarg, key := Key, message := Message}} =
        Check(#{Key => Value}),
    Name = iolist_to_binary(io_lib:format("~0tp", [Key])),
    ?assert(is_binary(Message) andalso Message =/= <<>>),
    %% The message stands by itself: it names what is wrong, too.
    is_tuple(Key) orelse ?assertMatch({_, _, {_, _}},
                                      {Name, Message, binary:match(Message, names(Key))}).

%% How a message may name a key.
names(imports) -> [<<"import">>];
names(env) -> [<<"env">>, <<"variable">>];
names(dirs) -> [<<"dirs">>, <<"paths">>];
names(Key) -> [atom_to_binary(Key)].

%% A key that nobody knows is named.
unknown_test_() ->
    [fun() -> ?assertMatch({error, #{class := Class, kind := badarg, key := Key}},
                           Check(#{Key => 1})) end
     || {Check, Class} <- [{fun compile/1, compile}, {fun pooling/1, compile},
                           {fun proposals/1, compile}, {fun instance/1, instantiate},
                           {fun wasi/1, instantiate}, {fun call/1, call}, {fun sealing/1, compile},
                           {fun load/1, compile}, {fun load_file/1, compile}],
        Key <- [nonsense, "fuel", <<"fuel">>, {1, 2, 3}, 1, []]].

%% Options that are no map.
no_map_test_() ->
    [fun() -> ?assertMatch({error, #{class := Class, kind := badarg, key := options}}, Check(Bad)) end
     || {Check, Class} <- [{fun compile/1, compile}, {fun instance/1, instantiate},
                           {fun call/1, call}, {fun load/1, compile}, {fun load_file/1, compile},
                           {fun sealing/1, compile},
                           {fun wasmtime_options:preinit/1, preinit}],
        Bad <- [[], [{fuel, true}], a, 1, <<>>]].

%% What comes out is complete, and has the defaults.
defaults_test() ->
    ?assertEqual({ok, #{fuel => false, opt_level => speed, proposals => #{},
                        allocator => on_demand}}, compile(#{})),
    ?assertMatch({ok, #{pooling := #{instances := 1000, max_memory := 268435456,
                                     keep_resident := 0, core_instances := 1000, tables := 1000,
                                     memories := 1000, verify := false}}},
                 compile(#{allocator => pooling})),
    ?assertEqual({ok, #{imports => [], links => [], wasi => undefined, memory_limit => 268435456,
                        total_memory_limit => infinity, max_tables => 100,
                        max_table_elements => 10000000, max_instances => 10,
                        host_timeout => 30000, host => undefined, stream => undefined,
                        inbox_limit => 16777216, runner => thread}}, instance(#{})),
    ?assertMatch({ok, #{max_instances := 100}, _},
                 wasmtime_options:instance(instantiate, #{}, component)),
    ?assertMatch({ok, #{wasi := #{args := [], env := [], dirs := [], stdin := none,
                                  stdout := none, stderr := none, output_limit := 16777216,
                                  clocks := all}}}, wasi(#{})),
    ?assertEqual({ok, #{timeout => infinity, fuel => undefined}}, call(#{})),
    ?assertEqual({ok, #{key => undefined}}, sealing(#{})),
    ?assertMatch({ok, #{key := undefined, check := full, fuel := false}}, load(#{})),
    ?assertMatch({ok, #{key := undefined, check := metadata, fuel := false}}, load_file(#{})).

%% A pool's caps follow its instances, unless they are given.
caps_test() ->
    ?assertMatch({ok, #{pooling := #{core_instances := 7, tables := 7, memories := 7}}},
                 pooling(#{instances => 7})),
    ?assertMatch({ok, #{pooling := #{core_instances := 7, tables := 20, memories := 7}}},
                 pooling(#{instances => 7, tables => 20})).

%% Keeping more than there is makes no sense, whichever of the two was given.
keep_resident_test() ->
    ?assertMatch({ok, _}, pooling(#{keep_resident => 65536, max_memory => 65536})),
    ?assertMatch({error, #{key := keep_resident}},
                 pooling(#{keep_resident => 65537, max_memory => 65536})).

%% A pool's options without a pool would do nothing.
pooling_without_pool_test() ->
    ?assertMatch({error, #{kind := badarg, key := pooling}}, compile(#{pooling => #{}})),
    ?assertMatch({error, #{key := pooling}}, compile(#{pooling => #{}, allocator => on_demand})),
    ?assertMatch({error, #{key := pooling}}, compile(#{pooling => 1, allocator => pooling})).

%% Relaxed SIMD goes with SIMD.
simd_test() ->
    ?assertMatch({ok, #{proposals := #{simd := false, relaxed_simd := false}}},
                 proposals(#{simd => false})),
    ?assertMatch({ok, _}, proposals(#{simd => false, relaxed_simd => false})),
    ?assertMatch({ok, _}, proposals(#{simd => true, relaxed_simd => true})),
    ?assertMatch({error, #{kind := badarg, key := relaxed_simd}},
                 proposals(#{simd => false, relaxed_simd => true})).

%% Names come out as UTF-8, unlimited as infinity, functions apart from their names.
values_test() ->
    F = fun(_, _) -> {ok, []} end,
    G = fun(_, _) -> {ok, [1]} end,
    {ok, #{imports := Names, memory_limit := infinity}, Funs} =
        wasmtime_options:instance(instantiate, #{{"env", "ü"} => F, memory_limit => unlimited,
                                                 imports => #{{<<"b">>, [$c, <<"d">>]} => G}},
                                  module),
    ?assertEqual(#{{<<"env">>, <<"ü"/utf8>>} => F, {<<"b">>, <<"cd">>} => G}, Funs),
    ?assertEqual(lists:sort(maps:keys(Funs)), lists:sort(Names)),
    ?assertMatch({error, #{kind := badarg}},
                 instance(#{{"a", "b"} => F, imports => #{{<<"a">>, <<"b">>} => G}})),
    {ok, #{wasi := #{stdin := {binary, <<"ab">>}, env := [{<<"A">>, <<"b">>}],
                     dirs := [{<<"/">>, <<"x", 255>>, read}]}}} =
        wasi(#{stdin => {binary, ["a", $b]}, env => [{"A", "b"}],
               dirs => [{"/", <<"x", 255>>, read}]}).

%% Compile options and those of loading come out apart.
load_test() ->
    {ok, Compile} = compile(#{fuel => true}),
    ?assertEqual({ok, Compile, #{key => <<"k">>, check => full}},
                 wasmtime_artifact:load_file(#{check => full, fuel => true, key => <<"k">>})),
    ?assertEqual({ok, Compile, #{key => undefined, check => full}},
                 wasmtime_artifact:load(#{fuel => true})).

%% The init's own options are taken apart; it runs without a pool.
preinit_test() ->
    ?assertMatch({ok, #{allocator := on_demand}, [], #{}}, wasmtime_options:preinit(#{})),
    {ok, Compile, Remove, Rest} =
        wasmtime_options:preinit(#{compile => #{allocator => pooling, fuel => true},
                                   remove_exports => ["a", <<"b">>], host_timeout => 5}),
    ?assertEqual(#{fuel => true, opt_level => speed, proposals => #{}, allocator => on_demand},
                 Compile),
    ?assertEqual([<<"a">>, <<"b">>], Remove),
    ?assertEqual(#{host_timeout => 5}, Rest),
    [?assertMatch({error, #{class := preinit, kind := badarg, key := remove_exports}},
                  wasmtime_options:preinit(#{remove_exports => Bad}))
     || Bad <- [a, "ab", [a], [<<0>>]]],
    ?assertMatch({error, #{class := compile, key := fuel}},
                 wasmtime_options:preinit(#{compile => #{fuel => 1}})),
    ?assertMatch({error, #{class := preinit, key := compile}},
                 wasmtime_options:preinit(#{compile => 1})).

%% A message does not grow with what it complains about.
long_value_test() ->
    {error, #{message := Message}} = compile(#{fuel => lists:seq(1, 1_000_000)}),
    ?assert(byte_size(Message) < 1000).

%% The check of what a request carries costs little beside the request: microseconds.
speed_test() ->
    F = fun(_, _) -> {ok, []} end,
    Opts = #{imports => #{{<<"worker">>, <<"result">>} => F, {<<"hornbeam">>, <<"call">>} => F,
                          {<<"hornbeam">>, <<"take">>} => F},
             wasi => #{dirs => [{<<"/">>, <<"/srv/request">>, read}, {<<"/lib">>, <<"/srv/lib">>, read},
                                {<<"/tmp">>, <<"/srv/tmp">>, write}],
                       clocks => monotonic, stderr => capture}},
    N = 10_000,
    {Micros, _} = timer:tc(fun() -> [wasmtime_options:instance(instantiate, Opts, module)
                                     || _ <- lists:seq(1, N)] end),
    ?debugFmt("~.2f us", [Micros / N]),
    ?assert(Micros / N < 50).

%% Files are not opened on a normal scheduler.
opening_test() ->
    Place = fun(Wasi) -> {ok, Complete} = instance(#{wasi => Wasi}), wasmtime_options:place(Complete) end,
    ?assertEqual(inline, Place(#{stdin => stream, stdout => capture, stderr => inherit, dirs => [{"/", "/", read}]})),
    [?assertEqual({Key, io}, {Key, Place(#{Key => {file, "f"}})}) || Key <- [stdin, stdout, stderr]],
    ?assertEqual(io, Place(#{args => lists:duplicate(501, "a"), stderr => {file, "f"}})).

%% Options that take long to copy are told by their number and by their bytes.
large_test() ->
    Large = fun(Opts) ->
        {ok, Complete} = instance(Opts),
        case wasmtime_options:place(Complete) of
            inline -> false;
            cpu -> true
        end
    end,
    ?assertEqual(false, Large(#{})),
    ?assertEqual(false, Large(#{wasi => #{}})),
    Named = fun(N) -> maps:from_list([{{"m", integer_to_list(I)}, fun(_, _) -> {ok, []} end} || I <- lists:seq(1, N)]) end,
    ?assertEqual([false, true], [Large(#{imports => Named(N)}) || N <- [100, 101]]),
    Long = fun(N) -> #{{"m", binary:copy(<<"n">>, N - 1)} => fun(_, _) -> {ok, []} end} end,
    ?assertEqual([false, true], [Large(#{imports => Long(N)}) || N <- [262144, 262145]]),
    ?assertEqual([false, true], [Large(#{wasi => #{args => lists:duplicate(N, "a")}}) || N <- [500, 501]]),
    ?assertEqual([false, true], [Large(#{wasi => #{env => lists:duplicate(N, {"a", "b"})}}) || N <- [500, 501]]),
    Data = fun(N) -> binary:copy(<<"x">>, N) end,
    ?assertEqual([false, true], [Large(#{wasi => #{stdin => {binary, Data(N)}}}) || N <- [262144, 262145]]),
    ?assertEqual([false, true], [Large(#{wasi => #{args => [Data(N)]}}) || N <- [262144, 262145]]).
